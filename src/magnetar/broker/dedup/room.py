"""Deduplication of one topic: the state, and how it survives a restart."""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import Position
from magnetar.broker.dedup.state import DedupState
from magnetar.broker.entry import metadata_of
from magnetar.managedlog.cursor import Cursor
from magnetar.managedlog.log import ManagedLog

SNAPSHOT_ENTRIES: Final = 20_000
"""Entries after which the state is stored: replaying so many at loading takes about a tenth of a second."""
_REPLAY_BYTES: Final = 4 << 20
_REPLAY_ENTRIES: Final = 10_000


class DedupRoom:
    """Plugged into a topic while deduplication is on."""

    def __init__(self, log: ManagedLog, cursor: Cursor, state: DedupState) -> None:
        self.state = state
        self.duplicates = 0
        """Entries dropped since the topic was loaded."""
        self._log = log
        self._cursor = cursor
        self._complete = cursor.mark_delete
        """Everything up to here is in `state`."""
        self._unstored = 0

    @classmethod
    async def load(cls, log: ManagedLog, cursor_name: str) -> DedupRoom:
        """The state as of the last durable entry: the stored snapshot and what came after it."""
        cursor = log.cursors.get(cursor_name)
        if cursor is None:
            cursor = await log.open_cursor(cursor_name, initial="latest")
        room = cls(log, cursor, DedupState(dict(cursor.properties)))
        await room._replay()
        return room

    async def _replay(self) -> None:
        position = self._log.next_position(self._complete)
        while runs := await self._log.read(position, _REPLAY_BYTES, _REPLAY_ENTRIES):
            for run in runs:
                for entry in run.entries:
                    metadata = metadata_of(entry)
                    if metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
                        continue
                    last = metadata.sequence_id + metadata.num_messages_in_batch - 1
                    highest = max(last, metadata.highest_sequence_id)
                    self.state.persisted(metadata.producer_name, highest)
                self._complete = Position(run.ledger_id, run.last_entry)
                self._unstored += len(run.entries)
            position = self._log.next_position(self._complete)

    def persisted(self, producer: str, highest: int, first: Position, count: int) -> None:
        """Entries of a producer became durable, in the order of the log."""
        self.state.persisted(producer, highest)
        self._complete = Position(first.ledger_id, first.entry_id + count - 1)
        self._unstored += count
        if self._unstored >= SNAPSHOT_ENTRIES:
            self._store()

    def _store(self) -> None:
        self._cursor.set_properties(self.state.snapshot())
        self._cursor.ack_cumulative(self._complete)
        self._unstored = 0

    async def snapshot(self) -> None:
        """Stores the state, so that loading need not replay what came before."""
        if self._unstored:
            self._store()
            await self._cursor.flush()
