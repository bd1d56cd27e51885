"""The index of blocks, and what a read takes from it."""

from __future__ import annotations

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.bookie.block_reading import GAP_BYTES_MAX, READ_BYTES_MAX, plan, trim
from magnetar.bookie.index import BlockPlace, BlockRows, LedgerIndex, SegmentIndex


def ledger(*parts: list[tuple[int, int]], entry_bytes: int = 10) -> LedgerIndex:
    """A ledger whose parts hold blocks of (first entry, count)."""
    index = LedgerIndex(1)
    for segment_id, blocks in enumerate(parts):
        rows = BlockRows(segment_id)
        offset = 4096
        for first, count in blocks:
            rows.append(first, offset, 96 + count * (4 + entry_bytes), count, count * entry_bytes)
            offset += 10_000
        index.parts.append(rows)
    index.check()
    return index


def firsts(places: list[BlockPlace]) -> list[tuple[int, int]]:
    return [(place.segment_id, place.first_entry) for place in places]


def test_a_read_takes_the_blocks_from_its_first_entry_on() -> None:
    index = ledger([(0, 10), (10, 10)], [(20, 10), (30, 10)])
    assert (index.last_entry, index.data_bytes) == (39, 400)
    assert firsts(index.select(0, 39, 1 << 20)) == [(0, 0), (0, 10), (1, 20), (1, 30)]
    assert firsts(index.select(15, 39, 1 << 20)) == [(0, 10), (1, 20), (1, 30)]
    assert firsts(index.select(15, 25, 1 << 20)) == [(0, 10), (1, 20)]
    assert firsts(index.select(19, 19, 1 << 20)) == [(0, 10)]
    assert firsts(index.select(39, 39, 0)) == [(1, 30)]
    assert index.select(40, 50, 100) == []


def test_a_read_ends_where_it_has_enough() -> None:
    index = ledger([(0, 10), (10, 10), (20, 10)])
    assert firsts(index.select(0, 29, 1)) == [(0, 0)]
    assert firsts(index.select(0, 29, 100)) == [(0, 0)]
    assert firsts(index.select(0, 29, 101)) == [(0, 0), (0, 10)]
    assert firsts(index.select(9, 29, 100)) == [(0, 0), (0, 10)]


def test_a_read_ends_at_a_gap() -> None:
    index = ledger([(0, 10), (20, 10)], [(35, 5)])
    assert firsts(index.select(5, 100, 1 << 20)) == [(0, 0)]
    assert index.select(10, 100, 1 << 20) == []
    assert index.select(32, 100, 1 << 20) == []
    assert firsts(index.select(20, 100, 1 << 20)) == [(0, 20)]
    assert firsts(index.select(36, 100, 1 << 20)) == [(1, 35)]


def test_the_block_of_an_entry_is_found() -> None:
    index = ledger([(0, 10), (20, 10)], [(35, 5)])
    place = index.place_of(25)
    assert place is not None
    assert (place.segment_id, place.first_entry) == (0, 20)
    assert index.place_of(10) is None
    assert index.place_of(34) is None
    assert index.place_of(40) is None
    assert index.last_place == index.place_of(39)
    assert LedgerIndex(1).last_place is None


def test_many_rows_are_searched() -> None:
    rows = BlockRows(0)
    for i in range(1000):
        rows.append(i * 3, 4096 + i * 200, 150, 3, 30)
    rows.check()
    assert [rows.find(entry) for entry in (0, 2, 3, 1500, 2999, 5000)] == [0, 0, 1, 500, 999, 999]
    assert rows.find(-1) == -1
    copy = BlockRows(0, bytes(rows.rows))
    assert (copy.last_entry, copy.data_bytes) == (2999, 30_000)


def test_a_segment_index_is_checked() -> None:
    index = SegmentIndex(3)
    index.rows(7).append(0, 4096, 150, 3, 30)
    index.rows(8).append(0, 4246, 150, 3, 30)
    index.tombstones.append(5)
    index.block_count = 3
    index.check()
    assert index.rows(7) is index.ledgers[LedgerId(7)]


def place(offset: int, size: int, segment_id: int = 0) -> BlockPlace:
    return BlockPlace(segment_id, 0, offset, size, 1, size - 100)


def test_blocks_that_lie_close_are_read_at_once() -> None:
    a, b = place(0, 1000), place(1000, 1000)
    c = place(2000 + GAP_BYTES_MAX, 500)
    d = place(2501 + 2 * GAP_BYTES_MAX, 500)
    e = place(0, 500, segment_id=1)
    assert [(x.segment_id, x.offset, x.length, len(x.places)) for x in plan([a, b, c, d, e])] == [
        (0, 0, 2500 + GAP_BYTES_MAX, 3),
        (0, d.offset, 500, 1),
        (1, 0, 500, 1),
    ]


def test_one_read_is_bounded_unless_one_block_is_larger() -> None:
    big = READ_BYTES_MAX + 1
    extents = plan(
        [place(0, big), place(big, 10), place(big + 10, READ_BYTES_MAX - 10), place(2 * big + 9, 1)]
    )
    assert [extent.length for extent in extents] == [big, READ_BYTES_MAX, 1]


def run(first: int, *sizes: int) -> EntryRun:
    return EntryRun(1, first, [bytes(size) for size in sizes], None, first, 0)


def shape(runs: list[EntryRun]) -> list[tuple[int, int]]:
    return [(run.first_entry, run.last_entry) for run in runs]


def test_runs_are_cut_to_what_was_asked_for() -> None:
    runs = [run(0, 10, 10, 10), run(3, 10, 10)]
    assert shape(trim(runs, 0, 4, 1000)) == [(0, 2), (3, 4)]
    assert shape(trim(runs, 1, 3, 1000)) == [(1, 2), (3, 3)]
    assert shape(trim(runs, 1, 4, 30)) == [(1, 2), (3, 3)]
    assert shape(trim(runs, 1, 4, 29)) == [(1, 2)]
    assert shape(trim(runs, 1, 4, 19)) == [(1, 1)]
    assert shape(trim(runs, 4, 4, 0)) == [(4, 4)]
    assert shape(trim([run(0, 5, 500, 5)], 0, 2, 100)) == [(0, 0)]
    assert shape(trim([run(0, 5, 500, 5)], 1, 2, 100)) == [(1, 1)]
