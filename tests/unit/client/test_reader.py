"""Exact ranges of a topic, from a broker that leaves entries out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from magnetar.base.ids import LedgerId, Position
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import DataLossError, RequestTimeoutError
from magnetar.client.reader import EntryReader, _read_until

TARGET = 1 << 20


def at(entry: int) -> Position:
    return Position(LedgerId(1), entry)


class Deliveries:
    """Stands in for `EntryReader`: its reads return these entries, then nothing; only waits take time."""

    topic = "persistent://public/default/t"

    def __init__(self, reads: Iterable[Iterable[int]], last: Position | None) -> None:
        self._reads = list(reads)
        self.last = last
        self.waited_s = 0.0
        self.asked = 0

    def read(self, timeout_s: float) -> EntryColumns:
        columns = EntryColumns()
        entries = list(self._reads.pop(0)) if self._reads else []
        if not entries:
            self.waited_s += timeout_s
        for entry in entries:
            columns.add(LedgerId(1), entry, b"x", -1, -1)
        return columns

    def last_position(self) -> Position | None:
        self.asked += 1
        return self.last

    def range(self, start: int, end: int, timeout_s: float = 30.0) -> list[int]:
        found = _read_until(cast("EntryReader", self), at(start), at(end), TARGET, timeout_s)
        return [entry for columns in found for entry in columns.entry_ids]


def test_a_range_that_ends_in_a_gap_costs_no_second() -> None:
    """Entries 8 and 9 are of an aborted transaction: no wait makes them come."""
    broker = Deliveries([range(5), range(5, 8)], last=at(7))
    assert broker.range(0, 10) == list(range(8))
    assert broker.asked == 1
    assert broker.waited_s < 0.1


def test_a_range_of_nothing_but_a_gap_costs_no_second() -> None:
    broker = Deliveries([], last=at(7))
    assert broker.range(8, 10) == []
    assert broker.waited_s < 0.1


def test_a_range_that_reaches_its_end_asks_and_waits_for_nothing() -> None:
    broker = Deliveries([range(5), range(5, 12)], last=at(11))
    assert broker.range(2, 10) == list(range(2, 10))
    assert (broker.asked, broker.waited_s) == (0, 0.0)


def test_a_slow_broker_is_waited_for() -> None:
    broker = Deliveries([range(5), [], [], [], range(5, 10)], last=at(9))
    assert broker.range(0, 10) == list(range(10))
    assert broker.asked == 2
    assert broker.waited_s > 1


def test_entries_that_exist_and_never_come_are_an_error() -> None:
    with pytest.raises(RequestTimeoutError):
        Deliveries([range(5)], last=at(9)).range(0, 10, timeout_s=0.0)


def test_a_topic_that_is_empty_now_has_lost_the_range() -> None:
    with pytest.raises(DataLossError):
        Deliveries([range(5)], last=None).range(0, 10)
