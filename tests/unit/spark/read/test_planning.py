"""Ledgers, splits, limits, losses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.ids import Position
from magnetar.spark.read.losses import loss
from magnetar.spark.read.offsets import Offset
from magnetar.spark.read.planning import (
    BYTES_PER_PARTITION,
    TASKS_MIN,
    TriggerDelay,
    groups,
    pieces_of,
    share,
)
from magnetar.tables.ledgers import KnownLog

STATS = {
    "lastConfirmedEntry": "9:19",
    "currentLedgerEntries": 20,
    "currentLedgerSize": 2000,
    "ledgers": [
        {"ledgerId": 3, "entries": 100, "size": 10_000, "firstIndex": 0},
        {"ledgerId": 5, "entries": 50, "size": 5_000},
        {"ledgerId": 9, "entries": 0, "size": 0},
    ],
}
LOG = KnownLog.from_internal_stats(STATS)


def test_reads_internal_stats() -> None:
    assert LOG.first == Position(3, 0)
    assert LOG.end == Position(9, 20)
    assert [ledger.entries for ledger in LOG.ledgers] == [100, 50, 20]
    assert LOG.first_index_at(Position(3, 0)) == 0
    assert LOG.first_index_at(Position(3, 1)) is None


def test_a_broker_that_tells_only_clients_how_far_they_get_bounds_the_plan() -> None:
    """Apache's: without the bound a query passes messages of an open transaction, and loses them."""
    held = KnownLog.from_bounded_stats(STATS, Position(5, 9))
    assert (held.end, held.stored_end) == (Position(5, 10), Position(9, 20))
    assert KnownLog.from_bounded_stats(STATS, Position(9, 18)).end == Position(9, 19)
    assert KnownLog.from_bounded_stats(STATS, None).end == Position(3, 0)


def test_a_last_message_at_or_behind_the_known_end_bounds_nothing() -> None:
    for last in (Position(9, 19), Position(9, 25), Position(11, 0)):
        assert KnownLog.from_bounded_stats(STATS, last) == LOG
    empty = {"lastConfirmedEntry": "9:-1", "ledgers": [{"ledgerId": 9, "entries": 0, "size": 0}]}
    assert KnownLog.from_bounded_stats(empty, None) == KnownLog.from_internal_stats(empty)


def test_a_ledger_that_was_just_opened() -> None:
    stats = {**STATS, "lastConfirmedEntry": "5:49", "currentLedgerEntries": 0, "currentLedgerSize": 0}
    assert KnownLog.from_internal_stats(stats).end == Position(5, 50)


def test_nothing_behind_the_oldest_open_transaction_is_planned() -> None:
    held = KnownLog.from_internal_stats({**STATS, "maxReadPosition": "5:9"})
    assert (held.end, held.stored_end) == (Position(5, 10), Position(9, 20))
    assert [ledger.entries for ledger in held.ledgers] == [100, 10]
    # A checkpoint of an older release may be behind it.
    assert loss(held, Offset(Position(9, 20), 170), 0) == ""
    assert "it ends at" in loss(held, Offset(Position(9, 21), 171), 0)
    all_held = KnownLog.from_internal_stats({**STATS, "maxReadPosition": "3:-1"})
    assert (all_held.end, all_held.ledgers, all_held.empty_index) == (Position(3, 0), (), 0)
    assert LOG.stored_end is None


def test_an_empty_log() -> None:
    stats = {"lastConfirmedEntry": "4:-1", "ledgers": [{"ledgerId": 4, "entries": 0, "size": 0}]}
    state = KnownLog.from_internal_stats(stats)
    assert state.first == state.end == Position(4, 0)
    assert KnownLog.from_last(None).end == Position(0, 0)


def test_measures_across_ledgers() -> None:
    measured = LOG.measure(Position(3, 90), Position(9, 5))
    assert measured.entries == 10 + 50 + 5
    assert measured.size_bytes == 1000 + 5000 + 500


@given(st.integers(0, 169), st.integers(1, 170), st.integers(1, 40))
def test_splits_cover_the_range_once(first: int, count: int, pieces: int) -> None:
    positions = [
        Position(ledger.ledger_id, entry) for ledger in LOG.ledgers for entry in range(ledger.entries)
    ]
    chosen = positions[first : first + count]
    start, end = chosen[0], Position(chosen[-1].ledger_id, chosen[-1].entry_id + 1)
    ranges = LOG.split(start, end, pieces)
    assert len(ranges) == min(pieces, len(chosen))
    covered = [position for piece in ranges for position in positions if piece.start <= position < piece.end]
    assert covered == chosen
    sizes = [piece.entries for piece in ranges]
    assert max(sizes) - min(sizes) <= 1
    for piece in ranges:
        # An end that lies behind no entry would be waited for.
        assert Position(piece.end.ledger_id, piece.end.entry_id - 1) in positions


@given(st.integers(0, 169), st.integers(0, 200))
def test_advances_by_entries(first: int, count: int) -> None:
    positions = [
        Position(ledger.ledger_id, entry) for ledger in LOG.ledgers for entry in range(ledger.entries)
    ]
    end = LOG.advance(positions[first], count, LOG.end)
    assert [position for position in positions[first:] if position < end] == positions[first : first + count]


def test_the_end_before_the_first_entry_of_a_ledger() -> None:
    assert LOG.as_end(Position(5, 0)) == Position(3, 100)
    assert LOG.as_end(Position(5, 7)) == Position(5, 7)
    assert LOG.as_end(Position(3, 0)) == Position(3, 0)


@given(st.integers(1, 1000), st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_shares_add_up(limit: int, backlogs: list[int]) -> None:
    named = {str(number): backlog for number, backlog in enumerate(backlogs)}
    parts = share(limit, named)
    assert sum(parts.values()) == min(limit, sum(backlogs))
    assert all(0 <= parts[name] <= named[name] for name in named)


def test_pieces() -> None:
    rows, sizes = [900, 100], [100 << 20, 1]
    assert pieces_of(rows, sizes, partitions_min=None, rows_per_partition_max=None) == [4, 1]
    assert pieces_of(rows, sizes, partitions_min=10, rows_per_partition_max=None) == [9, 1]
    assert pieces_of(rows, sizes, partitions_min=None, rows_per_partition_max=50) == [18, 2]


def test_very_many_small_ranges_share_tasks() -> None:
    assert groups([]) == []
    assert groups([1] * TASKS_MIN) == [range(number, number + 1) for number in range(TASKS_MIN)]
    many = groups([1000] * 10_000)
    assert len(many) == TASKS_MIN
    assert [each for group in many for each in group] == list(range(10_000))
    full = groups([BYTES_PER_PARTITION] * 100)
    assert len(full) == 100, "what is large has a task of its own"
    mixed = groups([BYTES_PER_PARTITION // 2 + 1] * 200)
    assert len(mixed) == 200


def test_asking_whether_a_trigger_is_held_back_changes_nothing() -> None:
    delay = TriggerDelay(rows_min=10, delay_ms=100, now_ms=0)
    assert [delay.holds(5, 50), delay.holds(10, 50), delay.holds(5, 100), delay.holds(5, 100)] == [
        True,
        False,
        False,
        False,
    ]
    delay.let_through(100)
    assert delay.holds(5, 199)
    assert not delay.holds(0, 200)
