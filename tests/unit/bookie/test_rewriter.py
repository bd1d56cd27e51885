"""Giving back the space of dead ledgers in segments where some ledger still lives."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.errors import CorruptDataError
from magnetar.bookie.blocks import HEADER_BYTES
from magnetar.bookie.files import Disk
from magnetar.bookie.segment_copy import SegmentCopy
from magnetar.bookie.segment_store import SegmentStore
from support.storage import Sink, crash_copy, entries_of, flip, run, segments, settled, store_in

BODY = 4000
FEW = 20
MANY = 200


def content(ledger_id: int, entry: int) -> bytes:
    return (b"%d:%d:" % (ledger_id, entry)).ljust(BODY, b".")


async def write(store: SegmentStore, counts: dict[int, int]) -> None:
    """Fills ledgers, interleaved, one block for each entry."""
    sinks = {ledger_id: Sink() for ledger_id in counts}
    appenders = {ledger_id: store.appender(ledger_id, sink) for ledger_id, sink in sinks.items()}
    for entry in range(max(counts.values())):
        for ledger_id, count in counts.items():
            if entry < count:
                appenders[ledger_id].append([content(ledger_id, entry)], None, entry, entry)
    for ledger_id, count in counts.items():
        await sinks[ledger_id].reached(count - 1)
        store.release(appenders[ledger_id])


async def rewrite_all(store: SegmentStore) -> int:
    count = 0
    while await store.rewriter.rewrite_one():
        count += 1
    return count


def sealed_bytes(store: SegmentStore) -> int:
    return sum(segment.path.stat().st_size for segment in store.segments if segment.sealed is not None)


@asynccontextmanager
async def mostly_dead(folder: Path, **options: object) -> AsyncIterator[SegmentStore]:
    """A store whose sealed segments hold much of ledger 1, which is deleted, and a little of ledger 2."""
    async with store_in(folder, segment_bytes=256 << 10, rewrite_bytes_per_s=1 << 40, **options) as store:
        await write(store, {1: MANY, 2: FEW, 3: MANY})
        await store.delete(1)
        await store.delete(3)
        await settled(store)
        yield store


def test_the_space_of_dead_ledgers_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with mostly_dead(tmp_path) as store:
            before = sealed_bytes(store)
            assert await rewrite_all(store) >= 1
            assert store.rewriter.reclaimed.freed_bytes == before - sealed_bytes(store) > 0
            assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]
            assert store.ledger_ids() == {2}
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]
            assert store.ledger_ids() == {2}

    run(story())


def test_what_lives_scattered_is_copied_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy writers make each piece wait: of a block every so often, one by one, the disk would fill up."""
    pieces: list[int] = []
    step = SegmentCopy.step

    def counted(copy: SegmentCopy, bytes_max: int) -> None:
        pieces.append(bytes_max)
        step(copy, bytes_max)

    monkeypatch.setattr(SegmentCopy, "step", counted)

    async def story() -> None:
        async with mostly_dead(tmp_path) as store:
            assert await rewrite_all(store) == len(pieces) >= 1
            assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]

    run(story())


def test_readers_go_on_while_a_segment_is_rewritten(tmp_path: Path) -> None:
    """A reader that holds an index, a kept rest of a block, or reads right now, gets the same entries."""

    async def story() -> None:
        async with mostly_dead(tmp_path) as store:
            index = await store.reader.index_of(2)
            seen: list[bytes] = []

            async def read_round() -> list[bytes]:
                found: list[bytes] = []
                while len(found) < FEW:
                    for some in await store.reader.read(index, len(found), FEW - 1, 3 * BODY):
                        found += some.entries
                return found

            async def read_on() -> None:
                while True:
                    seen[:] = await read_round()
                    assert seen == [content(2, i) for i in range(FEW)]
                    await asyncio.sleep(0)

            readers = [asyncio.create_task(read_on()) for _ in range(3)]
            assert await rewrite_all(store) >= 1
            for _ in range(20):
                await asyncio.sleep(0)
            assert not any(reader.done() for reader in readers)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            assert await read_round() == [content(2, i) for i in range(FEW)]

    run(story())


def test_reads_from_the_device_that_began_before_end_with_the_old_file(tmp_path: Path) -> None:
    class Slow(Disk):
        def read_now(self, fd: int, offset: int, length: int) -> bytes | None:
            return None

    async def story() -> None:
        async with mostly_dead(tmp_path, disk=Slow()) as store:
            index = await store.reader.index_of(2)
            reads = [
                asyncio.create_task(store.reader.read(index, first, FEW - 1, 1 << 20)) for first in range(FEW)
            ]
            await asyncio.sleep(0)
            assert await rewrite_all(store) >= 1
            for first, found in enumerate(await asyncio.gather(*reads)):
                assert found[0].entries[0] == content(2, first)
            assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]

    run(story())


def test_a_crash_at_any_step_leaves_one_file_or_the_other(tmp_path: Path) -> None:
    """The folder is copied before each step on the disk; every copy opens and holds all that lives."""
    copies: list[Path] = []

    class Copying(Disk):
        armed = False
        lock = threading.Lock()

        def _copy(self) -> None:
            if not self.armed:
                return
            with self.lock:
                while not self._copied(tmp_path / f"copy{len(copies)}"):
                    shutil.rmtree(tmp_path / f"copy{len(copies)}", ignore_errors=True)
                copies.append(tmp_path / f"copy{len(copies)}")

        @staticmethod
        def _copied(copy: Path) -> bool:
            """Copies; False when a file got its name meanwhile, from another thread: no crash leaves that."""
            try:
                crash_copy(tmp_path / "store", copy)
                for path in (tmp_path / "store" / "segments").glob("*.new"):
                    (copy / "segments" / path.name).write_bytes(path.read_bytes())
            except FileNotFoundError:
                return False
            return True

        def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
            self._copy()
            super().write(fd, pieces, offset)

        def sync(self, fd: int) -> None:
            self._copy()

        def sync_folder(self, folder: Path) -> None:
            self._copy()

    async def story() -> None:
        disk = Copying()
        async with mostly_dead(tmp_path / "store", disk=disk, idle_mark_ms=60_000) as store:
            disk.armed = True
            assert await store.rewriter.rewrite_one()
            disk.armed = False
        assert len(copies) >= 4
        for copy in copies:
            async with store_in(copy, rewrite_bytes_per_s=1 << 40) as store:
                assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]
                assert store.ledger_ids() == {2}
                assert not list((copy / "segments").glob("*.new"))
                await rewrite_all(store)
                assert await entries_of(store, 2) == [content(2, i) for i in range(FEW)]

    run(story())


def test_a_segment_whose_last_ledger_goes_meanwhile_is_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with mostly_dead(tmp_path) as store:
            rewriting = asyncio.create_task(store.rewriter.rewrite_one())
            await asyncio.sleep(0)
            await store.delete(2)
            await rewriting
        async with store_in(tmp_path) as store:
            assert store.ledger_ids() == set()
            assert len(segments(tmp_path)) <= 2

    run(story())


def test_damage_is_not_copied_into_something_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with mostly_dead(tmp_path) as store:
            index = await store.reader.index_of(2)
            place = index.place_of(0)
            assert place is not None
            path = segments(tmp_path)[0]
            flip(path, place.offset + HEADER_BYTES + 100)
            before = path.read_bytes()
            await rewrite_all(store)
            assert path.read_bytes() == before
            for _ in range(2):
                try:
                    await store.reader.read(index, 0, 0, 1)
                except CorruptDataError:
                    continue
                raise AssertionError("a damaged entry was served")
            assert not list((tmp_path / "segments").glob("*.new"))

    run(story())


def test_what_lives_mostly_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=256 << 10) as store:
            await write(store, {1: MANY, 2: FEW})
            await store.delete(2)
            assert await rewrite_all(store) == 0

    run(story())


def test_tombstones_that_are_needed_stay(tmp_path: Path) -> None:
    """Ledger 1 lies in the first segments; its tombstone in a later one, which is rewritten."""

    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=256 << 10, rewrite_bytes_per_s=1 << 40) as store:
            await write(store, {1: MANY, 2: MANY})
            await store.delete(1)
            await write(store, {4: MANY, 5: FEW})
            await store.delete(4)
            await rewrite_all(store)
            assert store.ledger_ids() == {2, 5}
        async with store_in(tmp_path) as store:
            assert store.ledger_ids() == {2, 5}
            assert await entries_of(store, 2) == [content(2, i) for i in range(MANY)]
            assert await entries_of(store, 5) == [content(5, i) for i in range(FEW)]

    run(story())


class ColdDisk(Disk):
    """Nothing lies in the page cache."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    def read_now(self, fd: int, offset: int, length: int) -> bytes | None:
        return None

    def read(self, fd: int, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return super().read(fd, offset, length)


@pytest.mark.parametrize("asked", [True, False])
def test_ledgers_that_are_read_from_all_over_a_segment_come_to_lie_in_one_piece(
    tmp_path: Path, asked: bool
) -> None:
    """Blocks of 70 ledgers in turn: further from each other than what is read along."""
    counts = dict.fromkeys(range(1, 71), 12)

    async def read_cold(store: SegmentStore, disk: ColdDisk) -> int:
        """Reads of the device for ledger 7."""
        await entries_of(store, 7)
        disk.reads.clear()
        assert await entries_of(store, 7) == [content(7, i) for i in range(12)]
        return len(disk.reads)

    async def story() -> None:
        disk = ColdDisk()
        settings = {"segment_bytes": 2 << 20, "rewrite_bytes_per_s": 1 << 40}
        async with store_in(tmp_path, disk=disk, sort_after_reads=4 if asked else 0, **settings) as store:
            await write(store, counts)
            await settled(store)
            before = await read_cold(store, disk)
            assert before >= 10
            assert await rewrite_all(store) == (1 if asked else 0)
            assert store.rewriter.reclaimed.sorted_segments == (1 if asked else 0)
            after = await read_cold(store, disk)
            assert after <= before - 5 if asked else after == before
            assert await rewrite_all(store) == 0, "it is not asked for any more"
            for ledger_id in counts:
                assert await entries_of(store, ledger_id) == [content(ledger_id, i) for i in range(12)]
        async with store_in(tmp_path) as store:
            for ledger_id in counts:
                assert await entries_of(store, ledger_id) == [content(ledger_id, i) for i in range(12)]

    run(story())
