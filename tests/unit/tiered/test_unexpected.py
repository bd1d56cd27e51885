"""An unexpected error: one log's must not keep the others, and its cause is told as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes.tiered import TieredProcess
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.api import OffloadedLog
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.request import OffloadStatus


async def filled(process: TieredProcess, name: str) -> ManagedLog:
    """A log with a sealed ledger, and a current one that is not empty."""
    log = await process.logs.open(name)
    log.retention = Retention(ms=-1, size_bytes=-1)
    process.offloading.apply(log.offloading, {}, {})
    log.append([b"sealed"] * 6, None)
    await process.settle()
    log.append([b"tail"], None)
    await process.settle()
    return log


def fail_for(process: TieredProcess, log: ManagedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying a ledger of `log` ends with an error of no known class."""
    copy = process.offloading._offloader.copy

    async def fail(offloaded: OffloadedLog, *arguments: object) -> object:
        if offloaded is log.offloading:
            raise ValueError("nobody expected this")
        return await copy(offloaded, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(process.offloading._offloader, "copy", fail)


def test_an_unexpected_error_of_one_log_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        policy = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0)
        process = TieredProcess(tmp_path, entries_max_per_ledger=6, cache_bytes=0, policy=policy)
        first, second = await filled(process, "first"), await filled(process, "second")
        fail_for(process, first, monkeypatch)
        await process.offloading.round()
        assert [ledger.offloaded for ledger in first.info().ledgers] == [False, False]
        assert [ledger.offloaded for ledger in second.info().ledgers] == [True, False]
        monkeypatch.undo()
        process.clock.advance(3_600_000)
        await process.offloading.round()
        assert [ledger.offloaded for ledger in first.info().ledgers] == [True, False]

    asyncio.run(story())


def test_who_asked_is_told_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that the broker stopped."""

    async def story() -> None:
        process = TieredProcess(tmp_path, entries_max_per_ledger=6, cache_bytes=0)
        log = await filled(process, "first")
        fail_for(process, log, monkeypatch)
        process.offloading.offload(log.offloading, log.last_position)
        await asyncio.gather(*process.tasks, return_exceptions=True)
        request = process.offloading.request_of(log.offloading)
        assert request.status is OffloadStatus.ERROR
        assert "nobody expected this" in request.error

    asyncio.run(story())
