"""Segments made of files that had a life before."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.bookie import supply
from magnetar.bookie.blocks import HEADER_BYTES, start_block
from magnetar.bookie.commit import Tail
from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.prewriter import Prewriter
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.bookie.segment_file import recycle_segment
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.spares import SparePool
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import InlineSyncer
from magnetar.runtime.threads import in_thread
from support.segment_images import Image, entries, found
from support.storage import Sink, crash_copy, entries_of, flip, run, segments, settled, store_in, until

SEGMENT = 128 << 10
BODY = 1000


def spares(folder: Path) -> list[Path]:
    return sorted((folder / "segments").glob("*.spare"))


def content(ledger_id: int, entry: int) -> bytes:
    return (b"%d:%d:" % (ledger_id, entry)).ljust(BODY, b".")


async def write(store: SegmentStore, ledger_id: int, count: int, *, patient: bool = True) -> None:
    """Fills a ledger, one group for each entry. `patient`: no segment comes too late for the log."""
    sink = Sink()
    appender = store.appender(ledger_id, sink)
    for entry in range(count):
        appender.append([content(ledger_id, entry)], None, entry, 1)
        await sink.reached(entry)
        if patient:
            await until(lambda: not store.supply.is_preparing)
    store.release(appender)


async def live_and_die(store: SegmentStore, ledger_id: int) -> None:
    """Fills more than a segment and deletes it, until a file waits for its next life."""
    await write(store, ledger_id, 300)
    await settled(store)
    await store.delete(ledger_id)
    await until(lambda: len(store.supply.spares) > 0)


def test_a_dead_segment_becomes_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            await live_and_die(store, 1)
            inodes = {path.stat().st_ino for path in spares(tmp_path)}
            await write(store, 2, 300)
            assert store.supply.recycled >= 1
            assert inodes & {path.stat().st_ino for path in segments(tmp_path)}
            assert await entries_of(store, 2) == [content(2, i) for i in range(300)]
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        for folder in (crashed, tmp_path):
            async with store_in(folder, segment_bytes=SEGMENT) as store:
                assert store.ledger_ids() == {2}
                assert await entries_of(store, 2) == [content(2, i) for i in range(300)]
                assert not [damage for segment in store.segments for damage in segment.damages]

    run(story())


@pytest.mark.parametrize("recycled", [False, True])
def test_a_segment_that_came_too_late_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recycled: bool
) -> None:
    """The log did not wait for it and went on in a later one: a crash then leaves it between two that hold
    something, and nothing of it was lost."""
    held = asyncio.Event()

    async def late(call: Callable[..., Any], *arguments: Any) -> Any:
        made = await in_thread(call, *arguments)
        if call.__name__ == "_make":
            await held.wait()
        return made

    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT, spare_segments=2 * recycled) as store:
            if recycled:
                await live_and_die(store, 1)
            monkeypatch.setattr(supply, "in_thread", late)
            await write(store, 2, 300, patient=False)
            numbers = [int(path.stem) for path in segments(tmp_path)]
            used = {segment.segment_id for segment in store.segments}
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
            assert set(numbers) - used, "nothing came too late"
            assert max(set(numbers) - used) < max(numbers)
            held.set()
            if recycled:
                await until(lambda: len(store.supply.spares) > 0)
        for folder in (crashed, tmp_path):
            async with store_in(folder, segment_bytes=SEGMENT) as store:
                assert await entries_of(store, 2) == [content(2, i) for i in range(300)]
                assert not [damage for segment in store.segments for damage in segment.damages]

    run(story())


def test_no_more_files_are_kept_than_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT, spare_segments=1) as store:
            await write(store, 1, 1000)
            await settled(store)
            await store.delete(1)
            await until(lambda: len(segments(tmp_path)) <= 2)
            assert len(spares(tmp_path)) <= 1
        async with store_in(tmp_path, segment_bytes=SEGMENT, spare_segments=0) as store:
            assert spares(tmp_path) == []
            await write(store, 2, 300)
            await store.delete(2)
            await until(lambda: len(segments(tmp_path)) <= 2)
        assert spares(tmp_path) == []

    run(story())


def test_what_was_prepared_and_not_used_waits_for_the_next_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            await live_and_die(store, 1)
        assert spares(tmp_path)
        for _ in range(3):
            async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
                assert store.supply.recycled == 1
            assert 1 <= len(spares(tmp_path)) <= 2

    run(story())


def test_old_entries_do_not_come_back_when_the_header_of_the_new_life_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            await live_and_die(store, 1)
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            assert store.supply.recycled == 1
            crashed = crash_copy(tmp_path, tmp_path / "crashed")
        flip(segments(crashed)[-1], 40)
        async with store_in(crashed, segment_bytes=SEGMENT) as store:
            assert 1 not in store.ledger_ids()

    run(story())


def test_a_file_that_is_read_still_is_not_written_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            await write(store, 1, 300)
            await settled(store)
            first = next(iter(store.segments))
            first.pin()
            before = first.path.stat()
            await store.delete(1)
            await until(lambda: not first.path.exists())
            await settled(store)
            assert before.st_ino not in {path.stat().st_ino for path in spares(tmp_path)}
            data = Disk().read(first.fd, DATA_OFFSET + HEADER_BYTES + 4, BODY)
            assert data == content(1, 0)
            first.unpin()

    run(story())


def test_a_crash_at_any_step_of_recycling_loses_nothing(tmp_path: Path) -> None:
    """The folder is copied around each step on the disk; every copy opens and holds all that lives."""
    root, copies = tmp_path / "store", []

    class Copying(Disk):
        def _copy(self) -> None:
            copy = crash_copy(root, tmp_path / f"copy{len(copies)}")
            for path in (root / "segments").iterdir():
                if path.suffix != ".seg":
                    (copy / "segments" / path.name).write_bytes(path.read_bytes())
            copies.append(copy)

        def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
            # Half of it, as a crash may leave it.
            data = b"".join(pieces)
            super().write(fd, [data[: len(data) // 2]], offset)
            self._copy()
            super().write(fd, [data], offset)
            self._copy()

        def allocate(self, fd: int, size: int) -> None:
            self._copy()
            super().allocate(fd, size)

        def sync(self, fd: int) -> None:
            self._copy()

        def sync_folder(self, folder: Path) -> None:
            self._copy()

    async def opens() -> None:
        for copy in copies:
            for _ in range(2):
                async with store_in(copy, segment_bytes=SEGMENT) as store:
                    assert store.ledger_ids() == {2}
                    assert await entries_of(store, 2) == [content(2, i) for i in range(5)]
                    assert not [damage for segment in store.segments for damage in segment.damages]
                    assert not list((copy / "segments").glob("*.new"))

    async def story() -> None:
        async with store_in(root, segment_bytes=SEGMENT, spare_segments=0) as store:
            await write(store, 1, 150)
            await write(store, 2, 5)
            await settled(store)
            dead = segments(root)[0]
            data = dead.read_bytes()
            await store.delete(1)
            await until(lambda: not dead.exists())
        dead.write_bytes(data)
        # From here on step by step: the dead file goes, comes back as a segment, and gets its first entries.
        disk = Copying()
        folder = StoreFolder.open(root, disk, sync=False)
        pool = SparePool(folder, disk, count_max=1, segment_bytes=SEGMENT)
        pool.keep(dead)
        spare = pool.take()
        assert spare is not None
        segment, size = recycle_segment(folder, disk, 99, 4711, spare, 2 * SEGMENT)
        assert size == 2 * SEGMENT
        _, pieces = Tail(99, segment.salt, DATA_OFFSET, size).place([start_block(2, 0)])
        disk.write(segment.fd, [*pieces, bytes(4096 - 108)], DATA_OFFSET)
        segment.drop()
        assert len(copies) == 9
        await opens()

    run(story())


def test_a_full_disk_takes_the_spares_first(tmp_path: Path) -> None:
    class Full(Disk):
        full = False

        def create(self, path: Path, size: int) -> int:
            if self.full and spares(tmp_path):
                raise OSError(errno.ENOSPC, "injected")
            return super().create(path, size)

        def allocate(self, fd: int, size: int) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "injected")
            super().allocate(fd, size)

        def free_bytes(self, folder: Path) -> int:
            return 0 if self.full else 1 << 40

    async def story() -> None:
        disk = Full()
        async with store_in(tmp_path, disk=disk, segment_bytes=SEGMENT) as store:
            await live_and_die(store, 1)
            await settled(store)
            disk.full = True
            # A spare serves as it is, and no dead file is kept back any more.
            await write(store, 2, 60)
            await until(lambda: store.supply.recycled > 0)
            await settled(store)
            await store.delete(2)
            await until(lambda: len(segments(tmp_path)) <= 2)
            assert len(spares(tmp_path)) <= 2
            assert await entries_of(store, 2) == []

    run(story())


@pytest.mark.parametrize("is_full", [False, True])
def test_a_killed_store_lost_nothing_in_a_segment_made_of_a_dead_one(tmp_path: Path, is_full: bool) -> None:
    """The dead one ended behind its footer, anywhere in a page; without room the file stays as short."""

    class Full(Disk):
        full = False

        def allocate(self, fd: int, size: int) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "injected")
            super().allocate(fd, size)

    async def story() -> None:
        disk = Full()
        async with store_in(tmp_path, segment_bytes=SEGMENT) as store:
            await live_and_die(store, 1)
        for spare in spares(tmp_path):
            os.truncate(spare, SEGMENT // 2 + 1)
        disk.full = is_full
        async with store_in(tmp_path, disk=disk, segment_bytes=SEGMENT) as store:
            assert store.supply.recycled == 1
            # What is given back unused is cut here.
            assert store.supply._active.written_bytes == SEGMENT // 2
            await write(store, 2, 5)
            crashed = crash_copy(tmp_path, tmp_path / "killed")
        async with store_in(crashed, segment_bytes=SEGMENT) as store:
            assert await entries_of(store, 2) == [content(2, i) for i in range(5)]
            assert not [damage for segment in store.segments for damage in segment.damages]

    run(story())


def test_zeros_are_written_ahead_and_the_log_moves_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(
            tmp_path,
            durability=Durability.FSYNC,
            syncer=InlineSyncer(),
            segment_bytes=1 << 20,
            prewrite_bytes_min=256 << 10,
            prewrite_bytes_per_s=1 << 40,
        ) as store:
            await write(store, 1, 1)
            await until(lambda: store.supply.prewriter.written_bytes >= 256 << 10)
            await until(lambda: len(store.supply.spares) > 0)
            (spare,) = spares(tmp_path)
            assert spare.read_bytes() == bytes(256 << 10)
            await write(store, 2, 300)
            assert store.supply.recycled >= 1
            assert await entries_of(store, 2) == [content(2, i) for i in range(300)]
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 2) == [content(2, i) for i in range(300)]

    run(story())


def test_no_zeros_are_written_where_nobody_wants_them(tmp_path: Path) -> None:
    class Refusing(Disk):
        def write_zeros(self, fd: int, offset: int, size: int) -> int:
            raise AssertionError("zeros were written")

    async def story() -> None:
        for durability, rate in ((Durability.VOLATILE, 1 << 40), (Durability.FSYNC, 0)):
            async with store_in(
                tmp_path,
                disk=Refusing(),
                durability=durability,
                syncer=InlineSyncer(),
                prewrite_bytes_per_s=rate,
                spare_segments=2,
                segment_bytes=SEGMENT,
            ) as store:
                await write(store, store.supply.committed_bytes + len(segments(tmp_path)), 150)
                assert store.supply.prewriter.written_bytes == 0

    run(story())


def test_a_filling_that_is_stopped_or_fails_leaves_no_file(tmp_path: Path) -> None:
    class Failing(Disk):
        stop: Prewriter | None = None

        def write_zeros(self, fd: int, offset: int, size: int) -> int:
            if self.stop is None:
                raise OSError(errno.ENOSPC, "injected")
            if offset:
                self.stop.stop()
            return super().write_zeros(fd, offset, size)

    async def story() -> None:
        disk, path = Failing(), tmp_path / "file"
        for fails in (True, False):
            prewriter = Prewriter(disk, bytes_per_s=1 << 40, committed=lambda: 0)
            disk.stop = None if fails else prewriter
            try:
                assert not await prewriter.fill(path, 4 << 20)
                assert not fails
            except OSError:
                assert fails
            assert not path.exists()

    run(story())


def test_nothing_is_written_ahead_while_entries_come_fast(tmp_path: Path) -> None:
    async def story() -> None:
        coming = iter(range(0, 1 << 60, 1 << 50))
        prewriter = Prewriter(Disk(), bytes_per_s=1 << 30, committed=lambda: next(coming))
        filling = asyncio.create_task(prewriter.fill(tmp_path / "file", 1 << 20))
        await until(lambda: next(coming) > 5 << 50)
        prewriter.stop()
        assert not await filling
        assert prewriter.written_bytes == 0

    run(story())


def test_a_scan_tells_the_old_life_of_a_file_from_a_torn_tail() -> None:
    """The old file is full of good blocks of its own, at the very places where the new ones end."""
    old = Image(salt=0x0101010101010101)
    for entry in range(30):
        old.write(entries(7, entry, bytes([100 + entry]) * 900))
    new = Image()
    for entry in range(10):
        new.write(entries(1, entry, bytes([entry]) * 900))
    whole = bytes(new.bytes[: new.end]) + bytes(old.bytes[new.end :])
    scan = new.scan(whole)
    assert found(scan) == {1: [(entry, entry) for entry in range(10)]}
    assert (scan.end, scan.torn_bytes, scan.found.damages) == (new.end, 0, [])
    # Torn in the last block: the old bytes shine through its end.
    start = new.places[-1][1]
    torn = bytes(new.bytes[: start + 200]) + bytes(old.bytes[start + 200 :])
    scan = new.scan(torn)
    assert found(scan) == {1: [(entry, entry) for entry in range(9)]}
    assert scan.end == start
    assert scan.torn_bytes > 0
    assert scan.found.damages == []
    # Old bytes in the place of a block that was synced are damage, not the end.
    place = new.places[4][1]
    damaged = bytes(new.bytes[:place]) + bytes(old.bytes[place : place + 996]) + whole[place + 996 :]
    scan = new.scan(damaged)
    assert [damage.offset for damage in scan.found.damages] == [place]
    assert found(scan) == {1: [(entry, entry) for entry in range(10) if entry != 4]}
