"""Compacted ledger and log as one sequence of entries."""

from __future__ import annotations

from typing import Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.log import ManagedLog


class Compacted(Protocol):
    """A topic's compacted ledger: `topic_compaction.py` `TopicCompaction` documents each member."""

    @property
    def horizon(self) -> Position: ...

    def covers(self, position: Position) -> bool: ...

    async def read(
        self, position: Position, bytes_max: int, entries_max: int
    ) -> tuple[list[EntryRun], Position]: ...

    async def position_of_time(self, publish_ms: int) -> Position | None: ...

    async def last_message(self) -> tuple[Position, int] | None: ...


class CompactedView:
    """The compacted entries that are read in place of the log's."""

    def __init__(self, log: ManagedLog, compaction: Compacted) -> None:
        self._log = log
        self._compaction = compaction

    def covers(self, position: Position) -> bool:
        """Whether the compacted ledger stands for the log here."""
        return self._compaction.covers(position)

    def floor(self, *, durable: bool) -> Position:
        """From where on a cursor can tell what is acknowledged: the first entry that the log has. A cursor in
        memory holds back no trimming: for it nothing that is compacted is sure to stay."""
        first = Position(self._log.first_position.ledger_id, 0)
        horizon = self._compaction.horizon
        return first if durable else max(first, Position(horizon.ledger_id, horizon.entry_id + 1))

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        if self._compaction.covers(position):
            return None
        return self._log.read_now(position, bytes_max, entries_max)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """As `ManagedLog.read`; up to the horizon from the compacted ledger."""
        return (await self.read_noting(position, bytes_max, entries_max))[0]

    async def read_noting(
        self, position: Position, bytes_max: int, entries_max: int
    ) -> tuple[list[EntryRun], Position | None]:
        """As `read`, and up to which place the entries are all that compaction has left; None: it was not
        asked."""
        if not self._compaction.covers(position):
            return await self._log.read(position, bytes_max, entries_max), None
        runs, horizon = await self._compaction.read(position, bytes_max, entries_max)
        if runs and (last := Position(runs[-1].ledger_id, runs[-1].last_entry)) < horizon:
            return runs, last
        following = self._log.next_position(horizon)
        upto = Position(following.ledger_id, following.entry_id - 1)
        return runs or await self._log.read(max(position, following), bytes_max, entries_max), upto

    def next_position(self, position: Position) -> Position:
        """As `ManagedLog.next_position`; before the first entry of the log simply the next place."""
        if position < self._log.first_position and self._compaction.covers(position):
            return Position(position.ledger_id, position.entry_id + 1)
        return self._log.next_position(position)

    async def position_of_time(self, publish_ms: int) -> Position:
        """As `ManagedLog.position_of_time`, also in the compacted ledger."""
        found = await self._compaction.position_of_time(publish_ms)
        return await self._log.position_of_time(publish_ms) if found is None else found

    async def last_message(self) -> tuple[Position, int] | None:
        """The last remaining message and its batch index; (EARLIEST, -1) when there is none.

        None when the last message lies after the horizon: then it is the log's.
        """
        return await self._compaction.last_message()
