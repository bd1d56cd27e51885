"""Compacted ledger and log as one sequence of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.log import ManagedLog

if TYPE_CHECKING:
    from magnetar.broker.compaction.room import TopicCompaction


class CompactedView:
    """What a subscription reads instead of the log."""

    def __init__(self, log: ManagedLog, compaction: TopicCompaction, start: Position) -> None:
        """`start` is the first entry wanted, which may lie before the first one that the log still has;
        LATEST when nothing before that is wanted."""
        self._log = log
        self._compaction = compaction
        self._start = start

    def sought(self, position: Position) -> None:
        """The subscription begins anew at `position`, EARLIEST and LATEST included."""
        self._start = position

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        if self._compaction.covers(position):
            return None
        return self._log.read_now(position, bytes_max, entries_max)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """As `ManagedLog.read`; up to the horizon from the compacted ledger."""
        if self._compaction.covers(position):
            runs, horizon = await self._compaction.read(position, bytes_max, entries_max)
            if runs:
                return runs
            position = max(position, self._log.next_position(horizon))
        return await self._log.read(position, bytes_max, entries_max)

    def next_position(self, position: Position) -> Position:
        """As `ManagedLog.next_position`; before the first entry of the log it is where the reader began."""
        first = self._log.first_position
        nothing_read = position.ledger_id <= first.ledger_id and position.entry_id < 0
        if nothing_read and self._start < first and self._compaction.covers(self._start):
            return self._start
        return self._log.next_position(position)

    async def position_of_time(self, publish_ms: int) -> Position:
        """As `ManagedLog.position_of_time`, also in the compacted ledger."""
        found = await self._compaction.position_of_time(publish_ms)
        return await self._log.position_of_time(publish_ms) if found is None else found

    async def last_message(self) -> tuple[Position, int] | None:
        """The last message that is left and its batch index; (EARLIEST, -1) when none is.

        None when the last message lies after the horizon: then it is the log's.
        """
        return await self._compaction.last_message()
