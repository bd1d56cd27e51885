"""Where a read begins: in the ledger that is written, at its end, before it, behind what was skipped."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LATEST, LedgerId, Position
from magnetar.managedlog.holes import Skipped
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.tail_cache import CacheBudget, TailCache

SEALED, CURRENT = LedgerId(5), LedgerId(9)


class OneByOne:
    """A ledger whose reads bring one entry."""

    loss = ""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        assert first <= last
        return [EntryRun(self.ledger_id, first, [b"x"], None, 0, 1)]


def reading(skips: tuple[int, int] | None) -> LogReading:
    ledgers = LedgerList([Ledger.sealed(SEALED, 0, entries=3, size_bytes=3, timestamp_ms=1)])
    ledgers.add(current := Ledger(CURRENT, 3))
    ledgers.grow(current, 4, 4, 2)
    nowhere: Any = None
    found = LogReading("log", ledgers, TailCache(CacheBudget(0)), nowhere)
    for ledger_id in (SEALED, CURRENT):
        reader: Any = OneByOne(ledger_id)
        found.use(reader)
    if skips is not None:
        found.skipped = Skipped()
        found.skipped.add(CURRENT, *skips)
    return found


@pytest.mark.parametrize(
    ("position", "skips", "first"),
    [
        ((5, 2), None, (5, 2)),
        ((5, 3), None, (9, 0)),
        ((7, 0), None, (9, 0)),
        ((9, -1), None, (9, 0)),
        ((9, 0), None, (9, 0)),
        ((9, 3), None, (9, 3)),
        ((9, 4), None, None),
        ((9, 40), None, None),
        ((11, 0), None, None),
        (LATEST, None, None),
        ((9, 1), (0, 2), (9, 3)),
        ((9, 3), (0, 2), (9, 3)),
        ((9, 1), (1, 3), None),
    ],
)
def test_a_read_begins_at_the_first_entry_that_can_be_read(
    position: tuple[int, int], skips: tuple[int, int] | None, first: tuple[int, int] | None
) -> None:
    runs = reading(skips).read_now(Position(LedgerId(position[0]), position[1]), 1 << 20, 10)
    assert runs is not None
    assert [(run.ledger_id, run.first_entry) for run in runs] == ([] if first is None else [first])


def test_the_current_ledger_is_the_last_while_it_takes_entries() -> None:
    ledgers = LedgerList()
    assert ledgers.current is None
    ledgers.add(Ledger.sealed(SEALED, 0, entries=3, size_bytes=3, timestamp_ms=1))
    assert ledgers.current is None
    ledgers.add(last := Ledger(CURRENT, 3))
    assert ledgers.current is last
