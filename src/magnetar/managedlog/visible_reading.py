"""Reads the visible entries of a log: see `visible.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_reading import LogReading


class Ordered(Protocol):
    """The part of a log that is needed here."""

    reading: LogReading

    @property
    def last_position(self) -> Position: ...
    def previous_position(self, position: Position) -> Position: ...


class Standing(Protocol):
    """The part of a cursor that is needed here."""

    @property
    def mark_delete(self) -> Position: ...


def read_now(
    reading: LogReading, position: Position, bytes_max: int, entries_max: int
) -> list[EntryRun] | None:
    """Like `ManagedLog.read_now`, when not all entries are visible."""
    visible = reading.visible
    assert visible is not None
    while True:
        position = visible.behind(position)
        runs = reading.read_now(position, bytes_max, entries_max)
        if not runs:
            return runs
        if (found := visible.shown(runs)) or visible.ends_within(runs):
            return found
        position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)


async def read(reading: LogReading, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
    """Like `ManagedLog.read`."""
    while True:
        if reading.visible is not None:
            position = reading.visible.behind(position)
        runs = await reading.read(position, bytes_max, entries_max)
        # Filtered after the wait: entries that arrived meanwhile may not be visible.
        visible = reading.visible
        if visible is None or not runs:
            return runs
        # Never on behind the end: it may have moved when that is read, and what lay between were left out.
        if (found := visible.shown(runs)) or visible.ends_within(runs):
            return found
        position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)


def read_limit(log: Ordered) -> Position:
    """The last durable entry that waits for no transaction, hidden or not; entry -1 when there is none."""
    last, visible = log.last_position, log.reading.visible
    if visible is None or visible.end is None or last < visible.end:
        return last
    return log.previous_position(visible.end)


def last_visible(log: Ordered) -> Position:
    """The last visible durable entry, with entry -1 when there is none; equals the log's last position when
    nothing is held back."""
    last, visible = read_limit(log), log.reading.visible
    if visible is None:
        return last
    while True:
        if last.entry_id < 0:
            # An empty ledger: the entries are in earlier ones.
            before = log.previous_position(last)
            if before.entry_id < 0:
                return last
            last = before
        hidden_from = visible.hidden_from(last)
        if hidden_from is None:
            return last
        last = log.previous_position(hidden_from)


def last_visible_entry(log: Ordered) -> Position | None:
    """The last visible entry, in whichever ledger; None when there is none."""
    last = last_visible(log)
    if last.entry_id < 0:
        last = log.previous_position(last)
    return last if last.entry_id >= 0 else None


def kept_from(cursors: Iterable[Standing], reading: LogReading, ledgers: LedgerList) -> list[Position]:
    """Nothing after these positions is trimmed: the cursors' mark-deletes, and the position before the first
    entry that is not visible yet."""
    end = None if reading.visible is None else reading.visible.end
    places = [cursor.mark_delete for cursor in cursors]
    return places if end is None else [*places, ledgers.previous_position(end)]
