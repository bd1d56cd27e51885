"""Arithmetic of positions over ledgers."""

from __future__ import annotations

import pytest

from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.managedlog.ledger_list import Ledger, LedgerList


def ledgers() -> LedgerList:
    """2: five entries, 4: empty, 5: three, 9: current with two."""
    found = LedgerList(
        [
            Ledger.sealed(ledger_id, 0, entries=entries, size_bytes=10 * entries, timestamp_ms=1)
            for ledger_id, entries in ((2, 5), (4, 0), (5, 3))
        ]
    )
    current = Ledger(9, 8)
    found.add(current)
    found.grow(current, 2, 20, 2)
    found.check()
    return found


@pytest.mark.parametrize(
    ("position", "following"),
    [
        (EARLIEST, (2, 0)),
        ((2, -1), (2, 0)),
        ((2, 3), (2, 4)),
        ((2, 4), (5, 0)),
        ((2, 99), (5, 0)),
        ((3, 7), (5, 0)),
        ((4, -1), (5, 0)),
        ((5, 2), (9, 0)),
        ((9, 1), (9, 2)),
        ((9, 7), (9, 8)),
        ((12, 0), (9, 2)),
        (LATEST, (9, 2)),
    ],
)
def test_next_position(position: tuple[int, int], following: tuple[int, int]) -> None:
    assert ledgers().next_position(Position(*position)) == following


@pytest.mark.parametrize(
    ("position", "previous"),
    [
        (EARLIEST, (2, -1)),
        ((2, 0), (2, -1)),
        ((2, 1), (2, 0)),
        ((2, 99), (2, 4)),
        ((4, 0), (2, 4)),
        ((5, 0), (2, 4)),
        ((7, 3), (5, 2)),
        ((9, 0), (5, 2)),
        ((9, 2), (9, 1)),
        (LATEST, (9, 1)),
    ],
)
def test_previous_position(position: tuple[int, int], previous: tuple[int, int]) -> None:
    assert ledgers().previous_position(Position(*position)) == previous


def test_entries_between_counts_over_borders() -> None:
    found = ledgers()
    assert found.entries_between(EARLIEST, LATEST) == found.entry_count == 10
    assert found.entries_between(Position(2, 1), Position(5, 0)) == 4
    assert found.entries_between(Position(4, 5), Position(9, 0)) == 4
    assert found.entries_between(Position(9, 1), Position(2, 0)) == 0
    assert found.entries_between(Position(9, 1), Position(9, 50)) == 0


def test_trimming_the_front_keeps_the_counts_between() -> None:
    found = ledgers()
    found.remove(2)
    found.remove(4)
    found.check()
    assert found.first_position == Position(5, 0)
    assert found.entries_between(EARLIEST, LATEST) == found.entry_count == 5
    assert found.entries_between(Position(2, 3), Position(9, 0)) == 4
    assert found.size_bytes == 50


def test_last_position_waits_for_the_ledger_that_was_left() -> None:
    found = ledgers()
    left = found[3]
    left.sealed_end = 3  # two more are appended and not durable
    found.add(Ledger(11, 12))
    assert found.last_position == Position(9, 1)
    found.grow(left, 2, 2, 3)
    assert found.last_position == Position(11, -1)
    found.check()


def test_an_empty_list_answers() -> None:
    found = LedgerList()
    assert found.last_position == EARLIEST
    assert found.entries_between(EARLIEST, LATEST) == 0
    assert found.previous_position(Position(3, 4)) == Position(3, -1)
