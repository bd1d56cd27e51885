"""What a managed log has, and where: positions, indexes, times, reads."""

from __future__ import annotations

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog import lookup, visible_reading
from magnetar.managedlog.appender import Appender
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.stored_log import StoredLog


class LogPlaces:
    """The part of a `ManagedLog` that changes nothing."""

    stored: StoredLog
    """Its value in the metadata store."""
    reading: LogReading
    """Reads of all that is durable, visible or not."""
    _ledgers: LedgerList
    _appender: Appender

    @property
    def terminated(self) -> Position | None:
        """The last entry of a terminated log; entry -1 when it is empty. None: not terminated."""
        return self.stored.metadata.terminated

    @property
    def last_position(self) -> Position:
        """The last durable entry; `(current ledger, -1)` when the current ledger is empty and all before it
        is durable. Never decreases while the log is open."""
        if not len(self._ledgers) and self.terminated is not None:
            return self.terminated
        return self._ledgers.last_position

    @property
    def first_position(self) -> Position:
        """The first readable entry, or the position of the next append."""
        if not len(self._ledgers):
            last = self.last_position
            return Position(last.ledger_id, last.entry_id + 1)
        return self._ledgers.first_position

    @property
    def next_index(self) -> int:
        """Index (PIP-70) of the next message to be appended: the number of messages ever appended."""
        return self._appender.next_index

    @property
    def entry_count(self) -> int:
        """Durable entries, including consumed ones that are still kept."""
        return self._ledgers.entry_count

    @property
    def size_bytes(self) -> int:
        """Bytes of the durable entries."""
        return self._ledgers.size_bytes

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        """Like `read`, but returns None instead of waiting for a device or a network."""
        if self.reading.visible is not None:
            return visible_reading.read_now(self.reading, position, bytes_max, entries_max)
        return self.reading.read_now(position, bytes_max, entries_max)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """Durable entries from the first readable one >= `position` on; empty at the end of the log.

        At least one entry, then as many as fit `bytes_max` bytes and `entries_max` entries; perhaps fewer
        than exist, as one call reads one ledger. Runs are in order; each is within one ledger. Only visible
        entries. Raises LedgerError, CorruptDataError.
        """
        return await visible_reading.read(self.reading, position, bytes_max, entries_max)

    def next_position(self, position: Position) -> Position:
        """The first entry after `position` that exists or may come to exist."""
        return self._ledgers.next_position(position)

    def previous_position(self, position: Position) -> Position:
        """The last entry before `position`; `(first ledger, -1)` when there is none."""
        return self._ledgers.previous_position(position)

    def entries_between(self, after: Position, upto: Position) -> int:
        """Durable entries after `after`, up to and including `upto`."""
        return self._ledgers.entries_between(after, upto)

    async def index_of(self, position: Position) -> int:
        """Index of the first message of the first entry >= `position`; the next index at the end.

        Raises what `read` raises.
        """
        index = await lookup.index_of(self._ledgers, self.reading, position)
        return self.next_index if index is None else index

    async def position_of_index(self, index: int) -> Position:
        """The entry that holds message `index`; the first entry when that is trimmed, the position of the
        next append when it does not exist yet. Raises what `read` raises."""
        return await lookup.position_of_index(self._ledgers, self.reading, index)

    async def position_of_time(self, publish_ms: int) -> Position:
        """The first entry whose broker time is >= `publish_ms`, Unix ms; the position of the next append when
        there is none. Raises what `read` raises."""
        return await lookup.position_of_time(self._ledgers, self.reading, publish_ms, self._appender.times)
