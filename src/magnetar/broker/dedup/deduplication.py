"""Deduplication of one topic: the state, and how it survives a restart."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.entries import LEFT_OUT
from magnetar.base.ids import Position
from magnetar.broker.dedup.dedup_state import DedupLimits, DedupState
from magnetar.broker.topic.entry import metadata_of
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.wire.payload import EntryError

_log = logging.getLogger("magnetar.broker.dedup")

_REPLAY_BYTES: Final = 4 << 20
_REPLAY_ENTRIES: Final = 10_000


class Deduplication:
    """Plugged into a topic while deduplication is on."""

    def __init__(
        self,
        log: ManagedLog,
        cursor: Cursor,
        state: DedupState,
        *,
        attached: Container[str],
        clock: Clock,
        limits: DedupLimits,
    ) -> None:
        """`attached` holds, at all times, the names of the producers that are attached."""
        self.state = state
        self.limits = limits
        """May be replaced at any time."""
        self.duplicates = 0
        """Entries dropped since the topic was loaded."""
        self._log = log
        self._cursor = cursor
        self._attached = attached
        self._clock = clock
        self._complete = cursor.mark_delete
        """All entries up to here are in `state`."""
        self._unstored = 0
        self._stored_ms = int(clock.monotonic_ms())
        self._retire_above = limits.producers_max

    @classmethod
    async def load(
        cls,
        log: ManagedLog,
        cursor_name: str,
        *,
        attached: Container[str],
        clock: Clock,
        limits: DedupLimits | None = None,
    ) -> Deduplication:
        """The state as of the last durable entry: the stored snapshot and what came after it.

        Raises StorageError, MetadataError, LogError.
        """
        cursor = log.cursors.get(cursor_name)
        if cursor is None:
            cursor = await log.open_cursor(cursor_name, initial="latest")
        state = DedupState(dict(cursor.properties))
        made = cls(log, cursor, state, attached=attached, clock=clock, limits=limits or DedupLimits())
        await made._replay()
        return made

    async def _replay(self) -> None:
        position = self._log.next_position(self._complete)
        while runs := await self._log.reading.read_intact(position, _REPLAY_BYTES, _REPLAY_ENTRIES):
            for run in runs:
                for offset, entry in enumerate(run.entries):
                    self._replay_entry(entry, run.count_of(offset))
                self._complete = Position(run.ledger_id, run.last_entry)
                self._unstored += len(run.entries)
            position = self._log.next_position(self._complete)

    def _replay_entry(self, entry: bytes, count: int) -> None:
        """Notes what an entry of `count` messages proves to have been sent."""
        if entry == LEFT_OUT:
            return
        try:
            metadata = metadata_of(entry)
        except EntryError as error:
            # Its consumers will tell that it is damaged; the topic and its other producers go on.
            _log.warning("%s: an entry without a readable sequence id is skipped: %s", self._log.name, error)
            return
        if metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            return
        # The number of messages is known: older versions did not check it against the metadata.
        highest = max(metadata.sequence_id + count - 1, metadata.highest_sequence_id)
        self.state.persisted(metadata.producer_name, highest)
        self._bound()

    def persisted(self, producer: str, highest: int, first: Position, count: int) -> None:
        """Entries of a producer became durable, in the order of the log."""
        self.state.persisted(producer, highest)
        self._complete = Position(first.ledger_id, first.entry_id + count - 1)
        self._unstored += count
        self._bound()
        if self._unstored >= self.limits.snapshot_entries:
            self._store()

    def _bound(self) -> None:
        if len(self.state) > self._retire_above:
            self._retire()

    def _retire(self) -> int:
        gone = self.state.retire(self._attached, int(self._clock.monotonic_ms()), self.limits)
        if gone:
            _log.info("%s: removed the sequence ids of %d absent producers", self._log.name, gone)
        # Some room before the next pass over all of them: each new producer would cause one.
        self._retire_above = len(self.state) + max(self.limits.producers_max // 8, 1)
        return gone

    def _store(self) -> None:
        """Begins to store the state; `_snapshot_durable` follows.

        The mark-delete lets the log be trimmed, so it must not advance together with the numbers: the log
        would be trimmed, the process die before the numbers are synced, and neither the snapshot nor the log
        would have them.
        """
        complete = self._complete
        self._cursor.set_properties(self.state.snapshot())
        self._unstored = 0
        self._stored_ms = int(self._clock.monotonic_ms())
        self._cursor.when_durable(lambda error: self._snapshot_durable(complete, error))

    def _snapshot_durable(self, complete: Position, error: BaseException | None) -> None:
        """The stored numbers cover all entries up to `complete`, or storing them failed."""
        if error is None:
            self._cursor.ack_cumulative(complete)
        else:
            # The next due snapshot replaces it; the log is kept until then.
            self._unstored = max(self._unstored, 1)

    async def _store_now(self) -> None:
        self._store()
        await self._cursor.flush()
        # The numbers are durable; now so is the position that followed them.
        await self._cursor.flush()

    async def maintain(self) -> None:
        """To be called regularly: forgets producers that are detached for long, stores a due snapshot.

        Raises what `snapshot` raises.
        """
        interval_ms = self.limits.snapshot_ms
        due = 0 < interval_ms <= self._clock.monotonic_ms() - self._stored_ms
        if self._retire() or (self._unstored and due):
            await self._store_now()

    async def snapshot(self) -> None:
        """Stores the state, so that loading need not replay what came before.

        Raises LedgerError, MetadataError, LogError.
        """
        if self._unstored:
            await self._store_now()
