"""A cursor: the position of a log's reader, with the entries that it acknowledged out of order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magnetar.base.ids import NO_LEDGER, LedgerId, Position
from magnetar.base.weak import nobody
from magnetar.managedlog.cursors.cursor_ledgers import CursorLedgers
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.cursors.cursor_store import CursorStore
from magnetar.managedlog.cursors.cursor_writes import Durable
from magnetar.managedlog.ledger_list import LedgerList


class Cursor:
    """Acknowledgements of one subscription.

    Changes take effect at once; a durable cursor writes them shortly after, and `when_durable` reports that.
    After a crash a cursor is at the state of its last durable change, never further.
    """

    __slots__ = ("_advanced", "_ledgers", "_side", "_state", "_store", "name")

    def __init__(
        self,
        *,
        name: str,
        state: CursorState,
        ledgers: LedgerList,
        store: CursorStore | None,
        advanced: Callable[[Position], None],
        side: CursorLedgers | None = None,
    ) -> None:
        """`store` and `side` are None for a cursor in memory; `advanced` is called with each new
        mark-delete."""
        self.name = name
        self._state = state
        self._ledgers = ledgers
        self._store = store
        self._side = side
        self._advanced = advanced

    def __repr__(self) -> str:
        return f"Cursor({self.name!r}, mark_delete={self.mark_delete}, holes={self.has_holes})"

    # Queries

    @property
    def durable(self) -> bool:
        """Whether it survives the process and holds back trimming."""
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        """Every entry up to and including it is acknowledged."""
        return self._state.mark_delete

    @property
    def has_holes(self) -> bool:
        """Whether any entry after mark-delete is acknowledged, wholly or in part."""
        return self._state.has_holes

    @property
    def properties(self) -> Mapping[str, int]:
        """Numbers stored with the position (deduplication, compaction horizon)."""
        return self._state.properties

    @property
    def cursor_properties(self) -> Mapping[str, str]:
        """The subscription's properties."""
        return {} if self._store is None else self._store.cursor_properties

    @property
    def ledger_id(self) -> LedgerId:
        """Ledger that holds the state; -1 when the metadata store holds it, or nothing does."""
        return NO_LEDGER if self._store is None else self._store.ledger_id

    @property
    def last_active_ms(self) -> int:
        """When the subscription was last used, as far as `used` was called, Unix ms; 0 when unknown."""
        return 0 if self._store is None else self._store.last_use.at_ms

    @property
    def stored_active_ms(self) -> int:
        """The value of `last_active_ms` that would be known after a crash."""
        return 0 if self._store is None else self._store.last_use.stored_ms

    def used(self) -> None:
        """The subscription is used now."""
        if self._store is not None:
            self._store.last_use.used()

    def follow_clock(self) -> None:
        """See `LastUse.follow_clock`."""
        if self._store is not None:
            self._store.last_use.follow_clock()

    async def store_used(self) -> None:
        """Makes `last_active_ms` durable. Raises LedgerError, MetadataError, LogError."""
        if self._store is not None:
            await self._store.store_used()

    @property
    def backlog_entries(self) -> int:
        """Durable entries that are not acknowledged."""
        ledgers = self._ledgers
        after = ledgers.entries_between(self._state.mark_delete, ledgers.last_position)
        return max(0, after - self._state.acked_count)

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return self._state.is_acked(position)

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        """The unacknowledged messages of a half-acknowledged batch: unsigned 64-bit words, lowest first, bit
        set = not acknowledged; None when the entry is not half-acknowledged."""
        return self._state.ack_set(position)

    def acked_ranges(self) -> list[tuple[Position, Position]]:
        """Acknowledged runs after mark-delete, first and last inclusive, ascending."""
        return [
            (Position(ledger_id, first), Position(ledger_id, last))
            for ledger_id, first, last in self._state.ranges()
        ]

    @property
    def partial_count(self) -> int:
        """Half-acknowledged batches."""
        return len(self._state.partial)

    @property
    def partial_left(self) -> int:
        """Unacknowledged messages in them. Cost: one step per batch."""
        return sum([left.bit_count() for left in self._state.partial.values()])

    def next_unacked(self, position: Position) -> Position:
        """The first entry >= `position` that is not acknowledged and exists or may come to exist."""
        return self._state.next_unacked(position)

    @property
    def has_redeliveries(self) -> bool:
        """Whether any unacknowledged entry was ever redelivered."""
        return len(self._state.redeliveries) > 0

    def may_know_from(self, position: Position) -> bool:
        """Whether any entry >= `position` may be acknowledged, wholly or in part, or was redelivered; False
        is certain."""
        return self._state.may_know_from(position)

    def redelivery_count(self, position: Position) -> int:
        """How often the entry was redelivered; 0 also when it is acknowledged. A seek resets it."""
        return self._state.redeliveries.count(position)

    # Changes

    def ack(self, positions: Sequence[Position]) -> None:
        """Acknowledges whole entries, in any order; ignores entries that do not exist."""
        before = self._state.mark_delete
        if self._state.ack(positions):
            self._changed(before)

    def ack_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledges messages of a batch of `batch_size` > 0: 64-bit words, lowest first, bit set = not
        acknowledged, missing words are zero. Adds to earlier acknowledgements.

        True when this call completes the acknowledgement of the entry.
        """
        state = self._state
        before, version = state.mark_delete, state.version
        whole = state.ack_batch(position, ack_set, batch_size)
        if state.version != version:
            self._changed(before)
        return whole

    def ack_between(self, after: Position, before: Position) -> None:
        """Acknowledges every existing entry after `after` and before `before`."""
        mark = self._state.mark_delete
        if self._state.ack_between(after, before):
            self._changed(mark)

    def ack_cumulative(self, position: Position) -> None:
        """Acknowledges every entry up to and including `position`, at most up to the last durable one."""
        before = self._state.mark_delete
        if self._state.ack_cumulative(position):
            self._changed(before)

    def ack_cumulative_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledges every entry before `position`, and messages of that entry like `ack_batch`."""
        self.ack_cumulative(self._ledgers.previous_position(position))
        return self.ack_batch(position, ack_set, batch_size)

    def redelivered(self, positions: Sequence[Position]) -> None:
        """Counts a redelivery of these entries, which a consumer returned."""
        if self._state.redelivered(positions) and self._store is not None:
            self._store.changed()

    def reset(self, position: Position) -> None:
        """Makes `position`, or the first readable entry after it, the next one to deliver; later
        acknowledgements are forgotten (seek)."""
        before = self._state.mark_delete
        self._state.reset(position)
        self._changed(before)

    def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replaces the numbers stored with the position; durable with the next changes."""
        self._state.set_properties(properties)
        self._changed(self._state.mark_delete)

    def end(self) -> None:
        """The log is closed: drops the reference to it."""
        self._advanced = nobody

    def _changed(self, before: Position) -> None:
        if self._store is not None:
            self._store.changed()
        if self._state.mark_delete != before:
            self._advanced(self._state.mark_delete)

    # Durability

    def when_durable(self, callback: Durable) -> None:
        """Calls `callback` once, on the event loop: with None when all changes so far are durable, or with
        the error. At once when there are no open changes, and for a cursor that is not durable."""
        if self._store is None:
            callback(None)
        else:
            self._store.when_durable(callback)

    async def flush(self) -> None:
        """Waits until all changes made so far are durable. Raises LedgerError, MetadataError, LogError."""
        if self._store is not None:
            await self._store.flush()

    @property
    def ledgers(self) -> CursorLedgers | None:
        """Stores further facts about the subscription; None for a cursor that is not durable."""
        return self._side

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the subscription's properties; durable on return. Raises what `flush` raises."""
        if self._store is not None:
            await self._store.set_cursor_properties(properties)
