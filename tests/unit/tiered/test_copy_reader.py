"""Reading a copy: how much is asked of the store, and what is kept."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from fakes.tiered import FakeWorker, refusal
from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun, cut
from magnetar.base.errors import LostEntriesError
from magnetar.base.ids import Position
from magnetar.ledger.api import NoSuchEntryError
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment
from magnetar.tiered.copy_reader import AHEAD_BYTES, PIECE_BYTES, CopyReading, OffloadedReader
from magnetar.tiered.errors import UnreadableCopyError
from magnetar.tiered.figures import OffloadFigures
from magnetar.tiered.parquet.parquet_history import (
    AsyncByteSource,
    DamagedRowsError,
    DamagedSegmentError,
    WorkerLostError,
)
from magnetar.tiered.pieces import PieceCache
from magnetar.tiered.stores.memory import MemoryStore

ENTRY_BYTES = 64 << 10
ENTRIES = 512
HALF = ENTRIES // 2


class CountingWorker(FakeWorker):
    """Makes entries up, and notes what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []
        self.error: Exception | None = None

    async def entries(
        self, source: AsyncByteSource, ledger_id: int, first_entry: int, bytes_max: int
    ) -> list[EntryRun]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.asked.append((first_entry, bytes_max))
        end = HALF if first_entry < HALF else ENTRIES
        run = EntryRun(7, first_entry, [b"x" * ENTRY_BYTES] * (end - first_entry), None, first_entry, 5)
        return cut(iter([(run, run.size_bytes)]), Position(7, first_entry), bytes_max, ENTRIES)


class Reading:
    def __init__(self, *, cache_bytes: int = 32 << 20) -> None:
        self.worker = CountingWorker()
        self.tasks: list[asyncio.Task[None]] = []
        self.cache = PieceCache(cache_bytes)
        segments = (OffloadedSegment(0, HALF - 1, 1), OffloadedSegment(HALF, ENTRIES - 1, 1))
        context = OffloadContext(UUID(int=1), "memory://", complete=True, segments=segments)
        self.reader = OffloadedReader(
            "t/n/persistent/x",
            OffloadedCopy(7, context),
            entries=ENTRIES,
            size_bytes=ENTRIES * ENTRY_BYTES,
            store=MemoryStore(ManualClock()),
            worker=lambda: self.worker,
            reading=CopyReading(self.cache, OffloadFigures(), self.spawn),
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)


def test_who_reads_on_is_expected() -> None:
    async def story() -> None:
        reading = Reading()
        first = 0
        waited = 0
        while first < ENTRIES:
            runs = reading.reader.read_now(first, ENTRIES, 1 << 20)
            if runs is None:
                waited += 1
                runs = await reading.reader.read(first, ENTRIES, 1 << 20)
            assert runs[0].first_entry == first
            first = runs[-1].last_entry + 1
            await reading.settle()
        assert waited == 1, "only the first piece is waited for"
        firsts = [asked[0] for asked in reading.worker.asked]
        assert firsts == sorted(set(firsts)), "nothing is read twice"
        assert {asked[1] for asked in reading.worker.asked} == {AHEAD_BYTES}

    asyncio.run(story())


def test_who_looks_something_up_gets_one_piece() -> None:
    async def story() -> None:
        reading = Reading()
        for entry in (300, 100, 200):
            runs = await reading.reader.read(entry, entry, 1)
            assert (runs[0].first_entry, len(runs[0].entries)) == (entry, 1)
        await reading.settle()
        assert reading.worker.asked == [(300, PIECE_BYTES), (100, PIECE_BYTES), (200, PIECE_BYTES)]
        with pytest.raises(NoSuchEntryError):
            await reading.reader.read(ENTRIES, ENTRIES, 1)

    asyncio.run(story())


def test_many_who_want_the_same_share_one_read() -> None:
    async def story() -> None:
        reading = Reading()
        found = await asyncio.gather(*(reading.reader.read(9, 20, 1 << 20) for _ in range(50)))
        assert all(runs[0].first_entry == 9 for runs in found)
        assert len(reading.worker.asked) == 1

    asyncio.run(story())


def test_the_budget_is_kept() -> None:
    async def story() -> None:
        reading = Reading(cache_bytes=10 << 20)
        for first in range(0, ENTRIES, 3):
            await reading.reader.read(first, ENTRIES, 1 << 20)
            reading.cache.check()
        await reading.settle()
        reading.cache.check()

    asyncio.run(story())


@pytest.mark.leaves("the log stays open, and reads ahead")
def test_errors_name_log_ledger_and_object_and_pass() -> None:
    async def story() -> None:
        reading = Reading()
        reading.worker.error = refusal("the object")
        with pytest.raises(
            UnreadableCopyError, match=r"ledger 7 of log t/n/persistent/x.*memory://.*500"
        ) as raised:
            await reading.reader.read(0, 5, 1)
        assert raised.value.retriable
        reading.worker.error = None
        assert await reading.reader.read(0, 5, 1)

    asyncio.run(story())


def test_damage_is_told_by_its_entries() -> None:
    async def story() -> None:
        reading = Reading()
        for error, entries in (
            (DamagedRowsError("pages", 3, 40), (3, 40)),
            (DamagedSegmentError("its footer"), (0, HALF - 1)),
        ):
            reading.worker.error = error
            with pytest.raises(LostEntriesError, match=r"accept-loss 7 \d+ --to \d+") as raised:
                await reading.reader.read(3, 5, 1)
            assert (raised.value.first_entry, raised.value.last_entry) == entries
            assert raised.value.ledger_id == 7
            assert raised.value.certain

    asyncio.run(story())


def test_a_segment_that_ends_the_worker_counts_as_damaged_in_the_end() -> None:
    """It was tried for ever: what ends a process may come again, and nothing said that it did."""

    async def story() -> None:
        reading = Reading()
        reading.worker.error = WorkerLostError("ended", -signal.SIGKILL)
        for _ in range(5):
            with pytest.raises(UnreadableCopyError):
                await reading.reader.read(0, 5, 1)
        reading.worker.error = WorkerLostError("ended", -signal.SIGABRT)
        with pytest.raises(UnreadableCopyError) as first:
            await reading.reader.read(0, 5, 1)
        assert first.value.retriable
        with pytest.raises(LostEntriesError) as raised:
            await reading.reader.read(0, 5, 1)
        assert (raised.value.first_entry, raised.value.last_entry) == (0, HALF - 1)
        assert not raised.value.certain, "memory that is short ends it as well"

    asyncio.run(story())
