"""What the store does when the disk does not: nothing acknowledged is lost, nothing lost is acknowledged."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import DiskFullError, StartupError, StorageError, StorageFailedError
from magnetar.bookie.files import Disk
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import InlineSyncer
from support.storage import Sink, crash_copy, entries_of, run, store_in


class BrokenSyncer(InlineSyncer):
    """Fails from the n-th sync on, once; a second call would be told a lie."""

    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self.count = 0
        self.fail_at = fail_at

    def _sync_file(self, fd: int) -> None:
        self.count += 1
        if self.count == self.fail_at:
            raise OSError(errno.EIO, "injected")


class BrokenDisk(Disk):
    """Writes a part and fails while `error` is set; sets nothing aside while `full` is."""

    error: int | None = None
    full = False

    def create(self, path: Path, size: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "injected")
        return super().create(path, size)

    def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
        if self.error is not None:
            data = b"".join(pieces)
            super().write(fd, [data[: len(data) * 2 // 3]], offset)
            raise OSError(self.error, "injected")
        super().write(fd, pieces, offset)


def test_a_failed_sync_stops_the_store_for_good(tmp_path: Path) -> None:
    async def story() -> None:
        fatal: list[StorageError] = []
        syncer = BrokenSyncer(fail_at=2)
        async with store_in(
            tmp_path, durability=Durability.FSYNC, syncer=syncer, on_fatal=fatal.append
        ) as store:
            sinks = [Sink(), Sink(), Sink()]
            one, two, _ = (store.appender(ledger_id, sink) for ledger_id, sink in enumerate(sinks))
            one.append([b"kept"], None, 0, 1)
            await sinks[0].reached(0)
            one.append([b"lost"], None, 1, 1)
            two.append([b"lost"], None, 0, 1)
            errors = [await sink.failure() for sink in sinks]
            assert all(isinstance(error, StorageFailedError) for error in errors)
            assert (sinks[0].last, sinks[1].last) == (0, -1)
            assert fatal == [store.failure]
            for refused in (one.append, two.append):
                with pytest.raises(StorageFailedError):
                    refused([b"more"], None, 2, 1)
            with pytest.raises(StorageFailedError):
                store.appender(9, Sink())
            with pytest.raises(StorageFailedError):
                await store.delete(0)
            assert syncer.count == 2  # never retried
            # What is durable stays readable.
            assert await entries_of(store, 0) == [b"kept"]

    run(story())


def test_a_failed_write_stops_the_store_for_good(tmp_path: Path) -> None:
    async def story() -> None:
        disk = BrokenDisk()
        async with store_in(tmp_path, disk=disk) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            appender.append([b"kept"], None, 0, 1)
            await sink.reached(0)
            disk.error = errno.EIO
            appender.append([b"lost"], None, 1, 1)
            assert isinstance(await sink.failure(), StorageFailedError)
            disk.error = None
        async with store_in(tmp_path) as store:
            assert await entries_of(store, 1) == [b"kept"]

    run(story())


def test_a_full_disk_refuses_what_waits_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        disk = BrokenDisk()
        async with store_in(tmp_path / "live", disk=disk) as store:
            sinks = [Sink() for _ in range(4)]
            one, two = store.appender(1, sinks[0]), store.appender(2, sinks[1])
            one.append([b"kept"], None, 0, 1)
            await sinks[0].reached(0)
            disk.error = errno.ENOSPC
            # Three blocks, two of which reach the file whole.
            one.append([b"refused"], None, 1, 1)
            two.append([b"refused"], None, 0, 1)
            one.append([b"refused too"], None, 2, 1)
            error = await sinks[0].failure()
            assert isinstance(error, DiskFullError)
            assert str(tmp_path / "live") in str(error)
            assert "free space" in str(error)
            await sinks[1].failure()
            assert store.failure is None
            crashed = crash_copy(tmp_path / "live", tmp_path / "crashed")

            # Space is there again: other ledgers go on, without a restart.
            disk.error = None
            three = store.appender(3, sinks[2])
            # As long as what was refused: written over that, its neighbours would be found behind it.
            three.append([b"instead"], None, 0, 1)
            await sinks[2].reached(0)
            continued = crash_copy(tmp_path / "live", tmp_path / "continued")
            assert await entries_of(store, 1) == [b"kept"]
        async with store_in(crashed) as store:
            # Refused entries may still be there: they were neither acknowledged nor denied for ever.
            assert (await entries_of(store, 1))[0] == b"kept"
        for folder in (continued, tmp_path / "live"):
            async with store_in(folder) as store:
                assert await entries_of(store, 1) == [b"kept"]
                assert await entries_of(store, 2) == []
                assert await entries_of(store, 3) == [b"instead"]

    run(story())


def test_a_disk_too_full_for_the_next_segment_refuses_and_recovers(tmp_path: Path) -> None:
    async def story() -> None:
        disk = BrokenDisk()
        async with store_in(tmp_path, disk=disk, segment_bytes=1 << 16) as store:
            disk.full = True
            sinks = [Sink() for _ in range(3)]
            store.appender(3, sinks[2]).append([b"old"], None, 0, 1)
            one = store.appender(1, sinks[0])
            one.append([bytes(40_000)], None, 0, 1)
            await sinks[0].reached(0)
            one.append([bytes(40_000)], None, 1, 1)
            assert isinstance(await sinks[0].failure(), DiskFullError)
            # Deleting is what makes room, so it has some of its own.
            await store.delete(3)
            assert store.ledger_ids() == {1}
            disk.full = False
            store.appender(2, sinks[1]).append([bytes(40_000)], None, 0, 1)
            await sinks[1].reached(0)
        async with store_in(tmp_path) as store:
            assert [len(await entries_of(store, ledger_id)) for ledger_id in (1, 2, 3)] == [1, 1, 0]

    run(story())


def test_who_asks_for_room_gets_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.bookie.supply._FULL_S", 0.0)

    async def story() -> None:
        disk = BrokenDisk()
        async with store_in(tmp_path, disk=disk, segment_bytes=1 << 16) as store:
            disk.full = True
            assert not store.supply.set_aside()
            disk.full = False
            assert store.supply.set_aside()
            # It is kept for the log, and made once only.
            disk.full = True
            assert store.supply.set_aside()
            sink = Sink()
            one = store.appender(1, sink)
            for i in range(2):
                one.append([bytes(40_000)], None, i, 1)
            await sink.reached(1)

    run(story())


def test_a_store_opens_on_a_full_disk_and_can_delete(tmp_path: Path) -> None:
    """It was refused for want of a whole segment. A small one does, of room that was kept for it."""

    class FullDisk(BrokenDisk):
        def create(self, path: Path, size: int) -> int:
            if self.full and (size > 1 << 20 or (tmp_path / "RESERVE").exists()):
                raise OSError(errno.ENOSPC, "injected")
            return Disk.create(self, path, size)

        def free_bytes(self, folder: Path) -> int:
            return 0 if self.full else 1 << 40

    async def story() -> None:
        disk = FullDisk()
        options: dict[str, Any] = {"segment_bytes": 4 << 20, "spare_segments": 0}
        options["durability"] = Durability.FSYNC
        async with store_in(tmp_path, disk=disk, syncer=InlineSyncer(), **options) as store:
            for ledger_id in (1, 2):
                sink = Sink()
                store.appender(ledger_id, sink).append([b"x" * 1000], None, 0, 1)
                await sink.reached(0)
        # A segment, and some room for the small files that a start writes.
        assert (tmp_path / "RESERVE").stat().st_size == (1 << 20) + (128 << 10)
        disk.full = True
        async with store_in(tmp_path, disk=disk, syncer=InlineSyncer(), **options) as store:
            assert not (tmp_path / "RESERVE").exists()
            assert await entries_of(store, 2) == [b"x" * 1000]
            await store.delete(1)
            disk.full = False
            sink = Sink()
            store.appender(3, sink).append([b"y" * (2 << 20)], None, 0, 1)
            await sink.reached(0)
        async with store_in(tmp_path, disk=disk, syncer=InlineSyncer(), **options) as store:
            assert store.ledger_ids() == {2, 3}
            assert (tmp_path / "RESERVE").exists()

    run(story())


def test_a_full_disk_at_the_start_is_one_clear_line(tmp_path: Path) -> None:
    async def story() -> None:
        disk = BrokenDisk()
        disk.full = True
        with pytest.raises(StartupError, match=rf"no space in {tmp_path} .*: free space there"):
            await SegmentStore.open(tmp_path, durability=Durability.VOLATILE, disk=disk)
        # And the folder is not left locked.
        async with store_in(tmp_path):
            pass

    run(story())


def test_closing_waits_for_what_was_appended(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path) as store:
            sink = Sink()
            store.appender(1, sink).append([b"x"] * 10, None, 0, 1)
        assert sink.last == 9
        async with store_in(tmp_path) as store:
            assert len(await entries_of(store, 1)) == 10

    run(story())


def test_closing_does_not_wait_for_a_store_that_failed(tmp_path: Path) -> None:
    async def story() -> None:
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=BrokenSyncer(fail_at=1)) as store:
            store.appender(1, Sink()).append([b"x"], None, 0, 1)
            closing = asyncio.ensure_future(store.close())
            await asyncio.wait_for(closing, 10)

    run(story())
