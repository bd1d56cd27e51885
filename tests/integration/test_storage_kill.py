"""Killing the process that writes: everything acknowledged is there afterwards, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from magnetar.base.errors import StorageFailedError
from magnetar.bookie.appender import LedgerAppender
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import HelperSyncer
from support.storage import Sink, entries_of, store_in
from support.storage_processes import Acknowledged, lost_entries, write_and_kill

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

ROUNDS = 12


def test_acknowledged_entries_survive_kills_at_random_points(tmp_path: Path) -> None:
    """All rounds in one folder, so that each recovers what the ones before it left."""
    chance = random.Random(20260)
    acknowledged = Acknowledged()
    for number in range(ROUNDS):
        first_ledger = acknowledged.next_ledger
        write_and_kill(
            tmp_path / "store",
            acknowledged,
            seed=number,
            bytes_of_acks=chance.randrange(1, 4000),
            segment_bytes=chance.choice([1 << 18, 1 << 20, 8 << 20]),
        )
        assert asyncio.run(lost_entries(tmp_path / "store", acknowledged, first_ledger)) == []
    assert asyncio.run(lost_entries(tmp_path / "store", acknowledged)) == []
    assert len(acknowledged.last) > ROUNDS
    assert acknowledged.recycled > ROUNDS


@dataclass
class WithoutHelper:
    """A store with one durable entry whose syncing helper was killed just now."""

    store: SegmentStore
    appender: LedgerAppender
    sink: Sink
    fatal: asyncio.Event
    """Set when the store says that it cannot go on."""


@asynccontextmanager
async def without_helper(folder: Path) -> AsyncIterator[WithoutHelper]:
    syncer = HelperSyncer()
    fatal = asyncio.Event()
    async with store_in(
        folder, durability=Durability.FSYNC, syncer=syncer, on_fatal=lambda _: fatal.set()
    ) as store:
        sink = Sink()
        appender = store.appender(1, sink)
        appender.append([b"kept"], None, 0, 1)
        await sink.reached(0)
        os.kill(syncer.pid, signal.SIGKILL)
        yield WithoutHelper(store, appender, sink, fatal)


def test_the_helper_that_syncs_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with without_helper(tmp_path) as it:
            it.appender.append([b"never acknowledged"], None, 1, 1)
            assert isinstance(await it.sink.failure(), StorageFailedError)
            assert it.sink.last == 0
            await asyncio.wait_for(it.fatal.wait(), 10)
        async with store_in(tmp_path) as store:
            assert (await entries_of(store, 1))[0] == b"kept"

    asyncio.run(story())


def test_the_helper_is_killed_while_nothing_is_written(tmp_path: Path) -> None:
    """It used to be noticed at the next publish only, minutes later on a quiet night."""

    async def story() -> None:
        async with without_helper(tmp_path) as it:
            await asyncio.wait_for(it.fatal.wait(), 10)
            assert isinstance(it.store.failure, StorageFailedError)
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 1) == [b"kept"]

    asyncio.run(story())


def test_the_helper_ends_with_its_parent(tmp_path: Path) -> None:
    async def story() -> int:
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=(syncer := HelperSyncer())):
            return syncer.pid

    pid = asyncio.run(story())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_error_of_a_sync_comes_back_from_the_helper(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = HelperSyncer()
        read_end, write_end = os.pipe()
        try:
            slot = syncer.attach(write_end)
            outcome: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
            syncer.sync(slot, outcome.set_result)  # a pipe cannot be synced
            error = await asyncio.wait_for(outcome, 10)
            assert error is not None
            assert error.errno == 22
            fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
            second = syncer.attach(fd)
            os.close(fd)
            good: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
            syncer.sync(second, good.set_result)
            assert await asyncio.wait_for(good, 10) is None
            syncer.detach(slot)
        finally:
            os.close(read_end)
            os.close(write_end)
            await syncer.close()

    asyncio.run(story())
