"""What comes before what in the segment store: the rules of which a cut of the power seldom tells."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.segment_file import SegmentFile, create_segment, recycle_segment, seal_segment
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import Done, InlineSyncer
from support.storage import Sink, run, segments, settled, store_in, until

BODY = 3_000
MANY, FEW = 90, 3


class HeldSyncer(InlineSyncer):
    """Syncs when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = False
        self.waiting: list[tuple[int, Done]] = []

    def sync(self, slot: int, done: Done) -> None:
        if self.is_held:
            self.waiting.append((slot, done))
        else:
            super().sync(slot, done)

    def release(self) -> None:
        self.is_held = False
        for slot, done in self.waiting:
            super().sync(slot, done)
        self.waiting.clear()


async def turns() -> None:
    """Gives everything that could go on without the disk the chance to."""
    for _ in range(100):
        await asyncio.sleep(0)


async def write(store: SegmentStore, counts: dict[int, int]) -> None:
    """Fills ledgers, interleaved, one block for each entry."""
    sinks = {ledger_id: Sink() for ledger_id in counts}
    appenders = {ledger_id: store.appender(ledger_id, sink) for ledger_id, sink in sinks.items()}
    for entry in range(max(counts.values())):
        for ledger_id, count in counts.items():
            if entry < count:
                appenders[ledger_id].append([bytes([ledger_id]) * BODY], None, entry, entry)
    for ledger_id, count in counts.items():
        await sinks[ledger_id].reached(count - 1)
        store.release(appenders[ledger_id])


def test_one_group_of_blocks_is_in_flight(tmp_path: Path) -> None:
    """Each block says that everything before it is synced, and recovery believes that."""

    async def story() -> None:
        syncer = HeldSyncer()
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            syncer.is_held = True
            appender.append([b"the first"], None, 0, 1)
            await until(lambda: bool(syncer.waiting))
            appender.append([b"the second"], None, 1, 1)
            await turns()
            groups, told = len(syncer.waiting), sink.last
            written = b"".join(path.read_bytes() for path in segments(tmp_path))
            syncer.release()
            await sink.reached(1)
            assert (groups, told) == (1, -1)
            assert b"the first" in written
            assert b"the second" not in written

    run(story())


def test_a_deletion_is_answered_when_its_tombstone_is_durable(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = HeldSyncer()
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer) as store:
            await write(store, {1: 1})
            syncer.is_held = True
            deletion = asyncio.ensure_future(store.delete(1))
            await until(lambda: bool(syncer.waiting))
            await turns()
            was_done = deletion.done()
            syncer.release()
            await asyncio.wait_for(deletion, 60)
            assert not was_done

    run(story())


def test_a_rewritten_segment_takes_along_the_tombstones_that_are_needed(tmp_path: Path) -> None:
    """The deleted ledger lies in a segment that is left alone; its tombstone in one that is rewritten."""

    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=256 << 10, rewrite_bytes_per_s=1 << 40) as store:
            await write(store, {1: FEW, 2: MANY})
            await store.delete(1)
            await write(store, {4: 2 * MANY, 5: FEW})
            await store.delete(4)
            await settled(store)
            rewritten = 0
            while await store.rewriter.rewrite_one():
                rewritten += 1
            assert rewritten
            assert any(1 in segment.tombstones for segment in store.segments)
            assert any(segment.holds(1) for segment in store.segments)
            assert store.ledger_ids() == {2, 5}
        async with store_in(tmp_path) as store:
            assert store.ledger_ids() == {2, 5}

    run(story())


class WatchedDisk(Disk):
    """Notes what lies where something is written, and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.before = b""

    def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
        self.before = os.pread(fd, 1 << 20, offset)
        super().write(fd, pieces, offset)


def test_what_lies_behind_the_end_goes_before_the_footer_comes(tmp_path: Path) -> None:
    """Blocks of a torn group would be found behind a torn footer."""
    path = tmp_path / "segment"
    path.write_bytes(b"blocks" * 100 + b"a torn group" * 100)
    disk, footer, end = WatchedDisk(), b"footer" * 20, 600
    fd = os.open(path, os.O_RDWR)
    try:
        seal_segment(SegmentFile(disk, 1, path, fd, 7), disk, footer, end)
    finally:
        os.close(fd)
    assert disk.before == bytes(len(footer))
    assert path.read_bytes() == b"blocks" * 100 + footer


class NotingDisk(Disk):
    """Notes each step that makes something durable, with the names that the folder has then."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, list[str]]] = []
        self.segments = Path()

    def _note(self, step: str) -> None:
        self.steps.append((step, sorted(path.name for path in self.segments.iterdir())))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._note("content")

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._note("names")


@pytest.mark.parametrize("is_recycled", [False, True])
def test_a_segment_has_its_header_and_then_its_name_before_it_takes_entries(
    tmp_path: Path, *, is_recycled: bool
) -> None:
    disk = NotingDisk()
    folder = StoreFolder.open(tmp_path, disk, sync=True)
    new, final = folder.new_segment_path(7), folder.segment_path(7)
    disk.segments = folder.segments
    spare = folder.segments / "spare"
    if is_recycled:
        spare.write_bytes(bytes(1 << 16))
    disk.steps.clear()
    if is_recycled:
        segment, _ = recycle_segment(folder, disk, 7, 4711, spare, 1 << 16)
    else:
        segment = create_segment(folder, disk, 7, 4711, 1 << 16)
    segment.drop()
    # The old name is gone for good before the bytes of the new life come.
    former = [("names", [new.name])] if is_recycled else []
    assert disk.steps == [*former, ("content", [new.name]), ("names", [final.name])]
