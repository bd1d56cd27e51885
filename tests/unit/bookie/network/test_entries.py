"""Entries under any ids, over a real store in a temporary folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.index import LedgerIndex
from magnetar.bookie.network.entries import UNSURE_FILE, NetworkEntries, merged
from magnetar.bookie.network.readmission import write_readmission
from magnetar.bookie.segment_set import SegmentSet
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.served import ServedLedger, Write
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.runtime.syncer import InlineSyncer

KEY = b"k" * 20


class Disk:
    """A store as a bookie's, and the tickets that came back."""

    def __init__(self) -> None:
        self.entries: NetworkEntries
        self.known: list[ServedLedger] = []
        self.done: list[int] = []
        self.lost: list[int] = []
        self._ticket = 0
        self._changed = asyncio.Event()

    def durable(self, tickets: Sequence[int]) -> None:
        self.done += tickets
        self._changed.set()

    def failed(self, tickets: Sequence[int], error: StorageError) -> None:
        self.lost += tickets
        self._changed.set()

    def write(
        self, ledger_id: int, *entry_ids: int, fence: bool = False, blob: bytes | None = None, mark: str = ""
    ) -> int:
        self._ticket += 1
        data = [f"{ledger_id}:{number}{mark}".encode() for number in entry_ids]
        self.entries.write(Write(self._ticket, ledger_id, KEY, entry_ids, data, fence, blob))
        return self._ticket

    async def settle(self) -> None:
        while len(self.done) + len(self.lost) < self._ticket:
            self._changed.clear()
            await self._changed.wait()

    async def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        await self.entries.make_ready(ledger_id)
        self.entries.waits = True
        return self.entries.entry(ledger_id, entry_id)


@asynccontextmanager
async def disk_in(folder: Path) -> AsyncIterator[Disk]:
    disk = Disk()
    store = await SegmentStore.open(
        folder,
        options=StoreOptions(segment_bytes=1 << 16),
        durability=Durability.VOLATILE,
        syncer=InlineSyncer(),
    )
    disk.entries, disk.known = await NetworkEntries.open(store, disk.durable, disk.failed)
    try:
        yield disk
    finally:
        store.check()
        await disk.entries.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_reading_in_order_sees_later_copies_and_deletions(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(5, *range(8))
            disk.write(6, *range(8))
            await disk.settle()
            for ledger_id in (5, 6, 5):
                read = [await disk.read(ledger_id, number) for number in range(8)]
                assert read == [b"%d:%d" % (ledger_id, number) for number in range(8)]
            disk.write(5, 6, mark=" again")
            await disk.settle()
            assert [await disk.read(5, number) for number in (5, 6, 7)] == [b"5:5", b"5:6 again", b"5:7"]
            disk.write(5, 8)
            await disk.settle()
            assert await disk.read(5, 8) == b"5:8"
            await disk.entries.delete(5)
            assert disk.entries.entry(5, 7) is None

    run(story)


def test_what_came_one_by_one_is_read_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a block of its own: 256 KiB of them were read and checked for every entry."""

    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            for number in (*range(100), *range(150, 200)):
                disk.write(5, number)
            await disk.settle()
            asked: list[int] = []
            reader = disk.entries.store.reader
            read_now = reader.read_now

            def counted(index: LedgerIndex, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
                asked.append(first)
                return read_now(index, first, last, bytes_max)

            monkeypatch.setattr(reader, "read_now", counted)
            for number in range(200):
                there = number < 100 or number >= 150
                assert await disk.read(5, number) == (b"5:%d" % number if there else None)
            assert asked == [0, 1, 150, 151]

    run(story)


def test_gaps_late_entries_and_copies(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(5, 0, 1, 4, 5)
            disk.write(5, 10)
            disk.write(5, 2, 3)
            disk.write(5, 4, mark=" again")
            disk.write(5, 7, 6)
            await disk.settle()
            assert disk.done == [1, 2, 3, 4, 5]
            assert disk.entries.entry_ranges(5) == [range(8), range(10, 11)]
            assert disk.entries.last_entry(5) == 10
        async with disk_in(tmp_path) as disk:
            assert disk.known == [ServedLedger(5, KEY, fenced=False)]
            read = [await disk.read(5, number) for number in range(12)]
            assert read == [
                b"5:0",
                b"5:1",
                b"5:2",
                b"5:3",
                b"5:4 again",
                b"5:5",
                b"5:6",
                b"5:7",
                None,
                None,
                b"5:10",
                None,
            ]
            disk.write(5, 8)
            await disk.settle()
            assert await disk.read(5, 8) == b"5:8"
            assert disk.entries.last_entry(5) == 10

    run(story)


def test_keys_fences_and_explicit_lacs_survive_many_starts(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            disk.write(2, fence=True)
            disk.write(1, blob=b"sealed")
            await disk.settle()
        expected = [
            ServedLedger(1, KEY, fenced=False, lac_blob=b"sealed"),
            ServedLedger(2, KEY, fenced=True),
        ]
        for _ in range(3):
            async with disk_in(tmp_path) as disk:
                assert disk.known == expected
                assert len([number for number in disk.entries.store.ledger_ids() if number < 0]) == 1

    run(story)


def test_a_ticket_without_entries_waits_for_those_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, *range(50))
            disk.write(1)
            disk.write(9)
            await disk.settle()
            assert sorted(disk.done) == [1, 2, 3]
            assert disk.done.index(1) < disk.done.index(2)

    run(story)


def test_a_deleted_ledger_is_gone_with_its_state(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            disk.write(2, 0)
            await disk.settle()
            await disk.entries.delete(1)
            assert disk.entries.held_ledgers() == {2}
        async with disk_in(tmp_path) as disk:
            assert [ledger.ledger_id for ledger in disk.known] == [2]

    run(story)


def test_entries_without_a_state_are_in_limbo(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            await disk.settle()
            states = min(disk.entries.store.ledger_ids())
            await disk.entries.store.delete(states)
        async with disk_in(tmp_path) as disk:
            assert disk.known == [ServedLedger(1, b"", fenced=True, limbo=True)]

    run(story)


def test_damaged_states_put_their_ledgers_in_limbo(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            disk.write(2, fence=True)
            await disk.settle()
            states = min(disk.entries.store.ledger_ids())
            place = disk.entries.store.reader._indexes[states].last_place
            assert place is not None
            segment = disk.entries.store.segments.get(place.segment_id)
            assert segment is not None
        data = bytearray(segment.path.read_bytes())
        data[place.offset + place.size - 1] ^= 1
        segment.path.write_bytes(data)
        for _ in range(2):
            async with disk_in(tmp_path) as disk:
                assert disk.known == [ServedLedger(1, b"", fenced=True, limbo=True)]
                assert not disk.entries.knows_all

    run(story)


def test_a_bookie_that_lost_ledgers_takes_entries_again_when_all_that_there_were_are_named(
    tmp_path: Path,
) -> None:
    """It was read-only for ever."""

    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            await disk.settle()
        (tmp_path / UNSURE_FILE).touch()
        async with disk_in(tmp_path) as disk:
            assert not disk.entries.knows_all
            # From a recovery.
            disk.write(5, 3)
            await disk.settle()
        in_limbo = [(number, True, True) for number in (1, 5, 7)]
        write_readmission(tmp_path, [LedgerId(1), LedgerId(7)])
        for _ in range(2):
            async with disk_in(tmp_path) as disk:
                assert disk.entries.knows_all
                assert sorted((each.ledger_id, each.fenced, each.limbo) for each in disk.known) == in_limbo
        async with disk_in(tmp_path) as disk:
            disk.write(8, 0)
            await disk.settle()
        async with disk_in(tmp_path) as disk:
            assert ServedLedger(8, KEY, fenced=False) in disk.known

    run(story)


def test_a_bookie_whose_files_are_damaged_still_takes_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of an unknown ledger may be of any ledger, also of one that is to come."""

    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0)
            await disk.settle()
        write_readmission(tmp_path, [LedgerId(1)])
        monkeypatch.setattr(SegmentSet, "has_lost_blocks", lambda _: True)
        async with disk_in(tmp_path) as disk:
            assert not disk.entries.knows_all

    run(story)


def test_an_idle_ledger_is_forgotten_and_found_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(1, 0, 1)
            await disk.settle()
            disk.entries.release_idle(-1.0)
            assert not disk.entries.is_ready(1)
            assert await disk.read(1, 1) == b"1:1"
            disk.write(1, 2)
            await disk.settle()
            assert [await disk.read(1, number) for number in range(4)] == [b"1:0", b"1:1", b"1:2", None]

    run(story)


def test_ranges_are_merged() -> None:
    assert merged([range(4, 6), range(3), range(2, 4), range(9, 10)]) == [range(6), range(9, 10)]


def test_a_ledger_of_the_bookies_own_that_a_client_made_known_is_forgotten(tmp_path: Path) -> None:
    """Each search for deleted ledgers would fail at it."""

    async def story() -> None:
        async with disk_in(tmp_path) as disk:
            disk.write(5, 0)
            disk.write(-1_001, fence=True)
            await disk.settle()
        async with disk_in(tmp_path) as disk:
            assert [ledger.ledger_id for ledger in disk.known] == [5]

    run(story)
