"""What of a log readers get, and what is kept for them."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.tail_cache import CacheBudget, TailCache
from magnetar.managedlog.visible import Visible
from magnetar.managedlog.visible_reading import kept_from, last_visible, last_visible_entry, read, read_limit


class FakeLog:
    """A log of sealed ledgers with ten entries each, and an empty one."""

    def __init__(self, visible: Visible | None, ledgers: int = 2) -> None:
        made = [
            Ledger.sealed(number, 0, entries=10, size_bytes=10, timestamp_ms=1) for number in range(ledgers)
        ]
        self.ledgers = LedgerList([*made, Ledger(ledgers, 0)])
        source: Any = None  # Nothing is read.
        self.reading = LogReading("log", self.ledgers, TailCache(CacheBudget(0)), source)
        self.reading.visible = visible

    @property
    def last_position(self) -> Position:
        return self.ledgers.last_position

    def previous_position(self, position: Position) -> Position:
        return self.ledgers.previous_position(position)


class Cursor:
    mark_delete = Position(1, 9)


def test_what_is_not_visible_yet_is_kept() -> None:
    visible = Visible()
    log = FakeLog(visible)
    assert kept_from([Cursor()], log.reading, log.ledgers) == [Position(1, 9)]
    visible.end = Position(0, 4)
    assert kept_from([Cursor()], log.reading, log.ledgers) == [Position(1, 9), Position(0, 3)]
    assert kept_from([], log.reading, log.ledgers) == [Position(0, 3)]


def test_the_last_visible_entry_lies_behind_hidden_and_empty_ledgers() -> None:
    assert last_visible(FakeLog(None)) == Position(2, -1)
    visible = Visible()
    log = FakeLog(visible)
    assert last_visible(log) == Position(1, 9)
    visible.hide(1, 0, 9)
    visible.hide(0, 8, 9)
    assert last_visible(log) == last_visible_entry(log) == Position(0, 7)
    visible.end = Position(0, 3)
    assert last_visible(log) == Position(0, 2)
    visible.end = Position(0, 0)
    assert last_visible(log) == Position(0, -1)
    assert last_visible_entry(log) is None
    empty = FakeLog(Visible(), ledgers=0)
    assert last_visible_entry(empty) is None


def test_a_run_is_cut_where_readers_get_nothing() -> None:
    visible = Visible()
    run = EntryRun(0, 0, [b"%d" % number for number in range(10)], None, 100, 5)
    assert visible.shown([run]) == [run]
    visible.hide(0, 2, 3)
    visible.end = Position(0, 8)
    shown = visible.shown([run])
    assert [(each.first_entry, each.last_entry, each.base_index) for each in shown] == [
        (0, 1, 100),
        (4, 7, 104),
    ]
    assert visible.behind(Position(0, 2)) == Position(0, 4)
    assert visible.ends_within([run])
    assert not visible.ends_within([run.slice(0, 8)])
    copied = visible.for_copy([run])
    assert [(each.first_entry, each.last_entry, each.base_index) for each in copied] == [
        (0, 1, 100),
        (2, 3, 102),
        (4, 9, 104),
    ]
    assert copied[1].entries == [LEFT_OUT] * 2
    other = EntryRun(1, 0, [b"a"], None, 110, 5)
    assert visible.for_copy([other]) == [other]
    assert visible.holds(0)
    assert visible.holds(1)
    visible.end = None
    assert not visible.holds(0)
    # A crash would forget that its entries are hidden, and a copy without them would be taken for all.
    visible.unkept["transaction"] = {0}
    assert visible.holds(0)
    assert not visible.holds(1)
    assert visible.forget_before(1) == [0]
    assert not visible.hidden


def test_a_read_never_goes_on_behind_the_end() -> None:
    # It did where all before the end was hidden; the end moved meanwhile, and what lay between never came.
    visible = Visible()
    visible.hide(0, 0, 2)
    visible.end = Position(0, 3)

    class Reading:
        def __init__(self) -> None:
            self.visible = visible

        async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
            if position > Position(0, 4):
                visible.end = None
                return [EntryRun(1, 0, [b"behind"], None, 5, 5)]
            return [EntryRun(0, number, [b"%d" % number], None, number, 5) for number in range(5)]

    reading: Any = Reading()
    # From an earlier ledger: it is not known yet that the first entries of this one are hidden.
    assert asyncio.run(read(reading, Position(-1, 8), 1 << 20, 10)) == []


def test_hidden_entries_wait_for_no_transaction_and_those_from_the_end_on_do() -> None:
    visible = Visible()
    assert visible.is_whole
    visible.hide(1, 5, 9)
    log = FakeLog(visible)
    assert not visible.is_whole
    assert (last_visible(log), read_limit(log)) == (Position(1, 4), log.last_position)
    visible.end = Position(1, 0)
    assert read_limit(log) == Position(0, 9)
    visible.end = Position(0, 0)
    assert read_limit(log) == Position(0, -1)
