"""The list of segments: a file that was lost is told from one that was deleted, whenever the process died."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from magnetar.base.errors import LostEntriesError, StartupError
from magnetar.bookie.files import Disk, VolatileDisk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import UNKNOWN_OWNER
from magnetar.bookie.inspection import forget_missing, inspect, repair
from magnetar.bookie.roster import Listed, Roster, decode_roster, encode_roster
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_metrics import collect
from magnetar.observability.metrics import Exposition
from support.storage import Sink, crash_copy, entries_of, flip, run, segments, settled, store_in, until

INSTANCE = b"i" * 16
SEGMENT_BYTES = 256 << 10
ENTRY = b"x" * (100 << 10)
"""Two of them fill a segment."""


async def write(store: SegmentStore, ledger_id: int, count: int) -> None:
    sink = Sink()
    appender = store.appender(ledger_id, sink)
    for number in range(count):
        appender.append([ENTRY], None, number, 1)
        await sink.reached(number)


async def crashed(folder: Path) -> Path:
    """A killed process's folder: ledger 1 in the first segment, 2 over all of four, 3 in the second alone."""
    async with store_in(folder / "original", segment_bytes=SEGMENT_BYTES) as store:
        await write(store, 1, 1)
        sink = Sink()
        two = store.appender(2, sink)
        for number in range(6):
            two.append([ENTRY], None, number, 1)
            await sink.reached(number)
            if number == 1:
                await write(store, 3, 1)
        await until(lambda: store.mark.is_marked)
        await settled(store)
        copy = crash_copy(folder / "original", folder / "crashed")
    assert len(used(copy)) == 4
    return copy


def used(folder: Path) -> list[Path]:
    """Segments that are not preparations."""
    return [path for path in segments(folder) if ENTRY in path.read_bytes()]


def listed(folder: Path) -> frozenset[int]:
    ids = Roster(store_folder(folder), Disk()).read()
    assert ids is not None
    return ids


def store_folder(folder: Path) -> StoreFolder:
    return StoreFolder.open(folder, Disk(), sync=False)


def missing(store: SegmentStore) -> list[int]:
    return [segment.segment_id for segment in store.segments if segment.is_missing]


def gauge(store: SegmentStore, name: str) -> float:
    out = Exposition()
    for _ in collect([store], out):
        pass
    (line,) = [line for line in out.render().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


# -- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3], [1, 3, 4, 9], range(0, 900, 2)])
def test_what_is_listed_is_read_again(ids: list[int]) -> None:
    said = Listed(7, frozenset(ids))
    assert decode_roster(encode_roster(said, INSTANCE).ljust(20_000, b"\0"), INSTANCE) == said


def test_no_flipped_bit_and_no_cut_is_believed() -> None:
    whole = encode_roster(Listed(7, frozenset([1, 2, 5])), INSTANCE)
    for at in range(8 * len(whole)):
        hurt = bytearray(whole)
        hurt[at // 8] ^= 1 << at % 8
        assert decode_roster(bytes(hurt), INSTANCE) is None
    assert all(decode_roster(whole[:length], INSTANCE) is None for length in range(len(whole)))


def test_a_list_outgrows_its_file(tmp_path: Path) -> None:
    folder = store_folder(tmp_path)
    roster = Roster(folder, VolatileDisk())
    for ids in (frozenset([4]), frozenset(range(0, 3000, 2)), frozenset([8])):
        roster.replace(ids)
        assert Roster(folder, Disk()).read() == ids


@pytest.mark.parametrize("copy", [0, 1])
def test_either_copy_is_enough(tmp_path: Path, copy: int) -> None:
    folder = store_folder(tmp_path)
    roster = Roster(folder, VolatileDisk())
    roster.replace([1, 2])
    roster.add(3)
    flip(roster.file, copy * roster.file.stat().st_size // 2 + 20)
    assert Roster(folder, Disk()).read() == {1, 2, 3}


def test_a_copy_is_written_when_the_other_one_is_durable(tmp_path: Path) -> None:
    """A torn write of both at once leaves none."""
    steps: list[str] = []

    class Noting(Disk):
        def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
            steps.append(f"write {'second' if offset else 'first'}")
            super().write(fd, pieces, offset)

        def sync(self, fd: int) -> None:
            steps.append("sync")
            super().sync(fd)

    roster = Roster(store_folder(tmp_path), Noting())
    roster.replace([1])
    steps.clear()
    roster.add(2)
    assert steps == ["write first", "sync", "write second", "sync"]


# -- what is lost -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_segment_without_its_file_is_damage_of_unknown_ledgers(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The first, the second, the last sealed one, and the one that was written to when the process died."""

    async def story() -> None:
        folder = await crashed(tmp_path)
        gone = used(folder)[number]
        gone.unlink()
        # The second start knows it from what the first one wrote.
        for _ in range(2):
            async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
                assert missing(store) == [int(gone.stem, 16)]
                assert gauge(store, "magnetar_segments_missing") == 1
                assert gauge(store, "magnetar_segment_damages") == 1
                assert f"corrupt data in {gone} at byte 0: the segment's file is missing" in caplog.text
                # A ledger that was open ends nowhere for certain where its last known block lies before it.
                for ledger_id, segment in ((1, 0), (3, 1)):
                    index = await store.reader.index_of(ledger_id)
                    lost_behind = store.segments.uncertain_end(index) is not None
                    assert lost_behind == (number >= segment)
                index = await store.reader.index_of(2)
                assert (store.segments.uncertain_end(index) is not None) == (number == 3)
                # What is new gets no id that was used.
                await write(store, 4, 1)
                assert max(s.segment_id for s in store.segments) > int(gone.stem, 16)
                await store.delete(4)

    run(story())


def test_entries_of_a_lost_segment_are_errors_and_all_others_are_served(tmp_path: Path) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        used(folder)[1].unlink()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            index = await store.reader.index_of(2)
            assert index.last_entry == 5
            lost = []
            for entry in range(6):
                try:
                    (found,) = await store.reader.read(index, entry, entry, 1)
                except LostEntriesError:
                    lost.append(entry)
                else:
                    assert found.entries == [ENTRY]
            assert 0 < len(lost) < 3
            assert [d.ledger_id for s in store.segments for d in s.damages] == [UNKNOWN_OWNER]

    run(story())


def test_a_file_that_comes_back_is_served_again(tmp_path: Path) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        path = used(folder)[1]
        path.rename(tmp_path / "elsewhere")
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert len(missing(store)) == 1
        (tmp_path / "elsewhere").rename(path)
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
            assert await entries_of(store, 2) == [ENTRY] * 6

    run(story())


# -- what is not ------------------------------------------------------------------------------------


class Watching(VolatileDisk):
    """Holds the list against the files at each step; a process may die before any of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps = 0
        self.faults: list[str] = []
        """Noted, not raised: a store that fails waits for what does not come any more."""

    def look(self) -> None:
        if (self.root / "ROSTER").exists():
            self.steps += 1
            before = listed(self.root)
            there = {int(path.stem, 16) for path in segments(self.root)}
            # Other threads work meanwhile: what they took off the list may be gone.
            if lost := (before & listed(self.root)) - there:
                self.faults.append(f"{sorted(lost)} are listed and not there")

    def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
        self.look()
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        is_log = path.suffix == ".seg" and offset >= DATA_OFFSET
        if is_log and int(path.stem, 16) not in listed(self.root):
            self.faults.append(f"{path.name} is written to and not listed")
        super().write(fd, pieces, offset)

    def sync(self, fd: int) -> None:
        self.look()
        super().sync(fd)

    def sync_folder(self, folder: Path) -> None:
        self.look()
        super().sync_folder(folder)


@pytest.mark.parametrize("spare_segments", [0, 2])
def test_at_each_step_what_is_listed_is_there(tmp_path: Path, spare_segments: int) -> None:
    """Segments come, fill, die, become spares and come again, and the store is opened three times."""

    async def story() -> None:
        disk = Watching(tmp_path)
        for turn in range(3):
            async with store_in(
                tmp_path, disk=disk, segment_bytes=SEGMENT_BYTES, spare_segments=spare_segments
            ) as store:
                assert not missing(store)
                for ledger_id in range(10 * turn + 1, 10 * turn + 4):
                    await write(store, ledger_id, 3)
                await settled(store)
                for ledger_id in range(10 * turn + 1, 10 * turn + 3):
                    await store.delete(ledger_id)
                most = 4 + turn
                await until(lambda store=store, most=most: len(list(store.segments)) <= most)
                await settled(store)
        assert disk.faults == []
        assert disk.steps > 30

    run(story())


def test_a_crash_between_the_list_and_the_deletion_brings_the_dead_segment_back_to_die(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        first = used(folder)[0]
        kept = first.read_bytes()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            await store.delete(1)
            await store.delete(2)
            await until(lambda: not first.exists())
        first.write_bytes(kept)
        assert int(first.stem, 16) not in listed(folder)
        caplog.clear()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
            assert not {1, 2} & store.ledger_ids()
            await until(lambda: not first.exists())
        assert "missing" not in caplog.text

    run(story())


def test_a_crash_between_a_new_file_and_the_list_leaves_an_empty_segment(tmp_path: Path) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        roster = Roster(store_folder(folder), Disk())
        roster.read()
        for path in segments(folder):
            if path not in used(folder):
                roster.remove(int(path.stem, 16))
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
            assert await entries_of(store, 2) == [ENTRY] * 6

    run(story())


def test_a_folder_of_an_earlier_version_gets_its_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And what is lost from then on is noticed."""

    async def story() -> None:
        folder = await crashed(tmp_path)
        (folder / "ROSTER").unlink()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
            assert await entries_of(store, 2) == [ENTRY] * 6
        assert "missing" not in caplog.text
        used(folder)[0].unlink()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert len(missing(store)) == 1

    run(story())


def test_a_list_that_an_earlier_version_did_not_keep_up_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It deleted segments without a word in the list, and wrote new ones."""

    async def story() -> None:
        folder = await crashed(tmp_path)
        old = (folder / "ROSTER").read_bytes()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            await write(store, 5, 3)
        used(folder)[0].unlink()
        (folder / "ROSTER").write_bytes(old)
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
        assert "another version used this folder" in caplog.text

    run(story())


def test_a_full_disk_costs_the_list_and_not_the_deletion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Written in place it needs no room, but there are file systems that never write in place."""

    class Full(VolatileDisk):
        full = False

        def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
            if self.full and pieces[0].startswith(b"MGROSTER"):
                raise OSError(errno.ENOSPC, "injected")
            super().write(fd, pieces, offset)

    disk = Full()
    folder = store_folder(tmp_path)
    roster = Roster(folder, disk)
    roster.replace([1, 2])
    disk.full = True
    roster.remove(1)
    assert not roster.file.exists()
    assert "segments are not listed until there is free disk space" in caplog.text
    disk.full = False
    roster.add(3)
    assert Roster(folder, disk).read() == {2, 3}


# -- what an operator does --------------------------------------------------------------------------


@pytest.mark.leaves("a refused start keeps its segments open until the process ends")
def test_a_list_that_is_damaged_twice_refuses_the_start_and_is_made_anew(tmp_path: Path) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        roster = folder / "ROSTER"
        roster.write_bytes(bytes(roster.stat().st_size))
        before = {path: path.read_bytes() for path in segments(folder)}
        with pytest.raises(StartupError, match="doctor storage repair"):
            async with store_in(folder):
                pass
        found = inspect(store_folder(folder), Disk())
        assert [(f.file, f.repairable) for f in found.findings] == [(str(roster), True)]
        assert {path: path.read_bytes() for path in segments(folder)} == before
        assert any(line.startswith(str(roster)) for line in repair(store_folder(folder), Disk()))
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert await entries_of(store, 2) == [ENTRY] * 6

    run(story())


def test_what_is_missing_is_found_and_forgotten_when_somebody_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        folder = await crashed(tmp_path)
        gone = used(folder)[1]
        gone.unlink()
        found = inspect(store_folder(folder), Disk())
        assert [(f.file, f.repairable) for f in found.findings] == [(str(gone), False)]
        assert found.missing == [int(gone.stem, 16)]
        # Mending is not forgetting.
        repair(store_folder(folder), Disk())
        assert inspect(store_folder(folder), Disk()).missing == [int(gone.stem, 16)]
        assert forget_missing(store_folder(folder), Disk()) == [f"{gone}: missing, forgotten"]
        assert inspect(store_folder(folder), Disk()).findings == []
        caplog.clear()
        async with store_in(folder, segment_bytes=SEGMENT_BYTES) as store:
            assert not missing(store)
        assert "missing" not in caplog.text

    caplog.set_level(logging.INFO)
    run(story())
