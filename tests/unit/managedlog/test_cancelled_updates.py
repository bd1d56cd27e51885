"""A task that stores a value by its version and is cancelled in between must know how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import UUID

import pytest

from fakes.managed_logs import Process
from fakes.metadata import FakeMetadataStore
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log_state import LogState
from magnetar.metadata.store import Stat
from magnetar.tiered.api import LedgerMovedError
from magnetar.tiered.context import OffloadContext


class _SlowAnswers(FakeMetadataStore):
    """Stores at once, and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: asyncio.Event | None = None

    async def put(self, path: str, data: bytes, **more: Any) -> Stat:
        stat = await super().put(path, data, **more)
        if self.answers is not None:
            await self.answers.wait()
        return stat


async def cancelled_before_the_answer(process: Process, store: _SlowAnswers, work: Awaitable[None]) -> None:
    """Cancels `work` when something is stored and not answered yet."""
    store.answers = answers = asyncio.Event()
    puts = len(store.puts)
    task = asyncio.ensure_future(work)
    await process.settle()
    assert len(store.puts) == puts + 1
    task.cancel()
    await process.settle()
    answers.set()
    store.answers = None
    await process.settle()
    assert task.cancelled()


def test_a_log_whose_update_was_cancelled_is_nobody_elses() -> None:
    async def story() -> None:
        store = _SlowAnswers()
        process = Process(store=store)
        log, _ = await process.open()
        await cancelled_before_the_answer(process, store, log.set_properties({"a": "1"}))
        log.append([b"a"], None)
        await log.set_properties({"a": "2"})
        await log.close()
        assert log.state is LogState.CLOSED
        assert (await process.open())[0].properties == {"a": "2"}

    asyncio.run(story())


def test_a_cursor_whose_update_was_cancelled_is_nobody_elses() -> None:
    async def story() -> None:
        store = _SlowAnswers()
        process = Process(store=store)
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        await cancelled_before_the_answer(process, store, cursor.set_cursor_properties({"a": "1"}))
        await cursor.set_cursor_properties({"a": "2"})
        assert log.state is LogState.OPEN
        await log.close()

    asyncio.run(story())


def test_nothing_is_stored_for_a_log_that_is_closed() -> None:
    """An attempt to offload outlasts an unload, and may end when the log is open anew."""

    async def story() -> None:
        store = _SlowAnswers()
        process = Process(store=store, entries_max_per_ledger=1, retention=Retention(-1, -1))
        log, _ = await process.open()
        first = log.append([b"a"], None).ledger_id
        await process.settle()
        begun = OffloadContext(UUID(int=1), "memory://")
        store.answers = answers = asyncio.Event()
        remembering = asyncio.ensure_future(log.offloading.remember(first, None, begun))
        await process.settle()
        closing = asyncio.ensure_future(log.close())
        await process.settle()
        assert not closing.done(), "an update is under way"
        store.answers = None
        answers.set()
        await remembering
        await closing
        stored = dict(store.values)
        with pytest.raises(LedgerMovedError):
            await log.offloading.remember(
                first, begun, OffloadContext(UUID(int=1), "memory://", complete=True)
            )
        assert store.values == stored

    asyncio.run(story())
