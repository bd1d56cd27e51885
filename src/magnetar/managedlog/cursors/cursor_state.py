"""The state of a cursor: which entries are acknowledged. Pure.

    From coarse to fine:
    - `mark_delete`: every entry up to and including it is acknowledged;
    - acknowledged entries after it, per ledger, without any limit (a dropped one would be delivered again);
    - half-acknowledged batches: the unacknowledged messages of an entry.
    And how often entries were redelivered.

Positions that do not exist (trimmed, not appended yet, of another topic) are ignored: a client may send any
position, and remembering such would let it fill memory.

Changes are also recorded as a delta, so that persisting costs as much as the change, not as the state. A
delta names the new mark-delete and the entries acknowledged after it since the last delta. The deltas applied
in order to the snapshot before them give the state; a delta that a crash loses only makes the state older, so
that messages are delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX, bits_of_words, words_of_bits
from magnetar.managedlog.cursors.cursor_delta import CursorDelta, FreshAcks
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.cursors.redeliveries import Redeliveries
from magnetar.managedlog.ledger_list import LedgerList


class CursorState:
    """Acknowledgements over the ledgers of one log."""

    __slots__ = (
        "_acked",
        "_acked_count",
        "_fresh",
        "_ledgers",
        "_partial",
        "_properties_changed",
        "_replaced",
        "mark_delete",
        "properties",
        "redeliveries",
        "version",
    )

    mark_delete: Position
    """All entries up to here are acknowledged."""
    properties: Mapping[str, int]
    """Numbers stored with the position; not to be changed in place."""
    version: int
    """Incremented at each change; -1 between `apply` and `settle`, where not all parts agree yet."""
    redeliveries: Redeliveries
    """Changed by `redelivered` and by acknowledgements."""

    def __init__(
        self, ledgers: LedgerList, mark_delete: Position, properties: Mapping[str, int] | None = None
    ) -> None:
        self._ledgers = ledgers
        self.mark_delete = mark_delete
        self.properties = dict(properties or {})
        self.version = 0
        self.redeliveries = Redeliveries()
        # Entries after mark_delete, by ledger; no empty sets.
        self._acked: dict[LedgerId, EntrySet] = {}
        self._acked_count = 0
        self._partial: dict[Position, int] = {}
        # The delta under construction.
        self._fresh = FreshAcks()
        self._replaced = self._properties_changed = False

    # Queries

    @property
    def acked_count(self) -> int:
        """Entries acknowledged after mark_delete."""
        return self._acked_count

    @property
    def partial(self) -> Mapping[Position, int]:
        """Half-acknowledged batches: one bit for each message, set = not acknowledged."""
        return self._partial

    @property
    def has_holes(self) -> bool:
        """Whether any entry after mark_delete is acknowledged, wholly or in part."""
        return bool(self._acked or self._partial)

    def may_know_from(self, position: Position) -> bool:
        """Whether any entry >= `position` may be acknowledged, wholly or in part, or was redelivered; False
        is certain."""
        if self._partial or position <= self.mark_delete or self.redeliveries.may_hold_from(position):
            return True
        return any(position <= (ledger_id, entries.last()) for ledger_id, entries in self._acked.items())

    @property
    def replaced(self) -> bool:
        """Whether the delta under construction begins with a seek."""
        return self._replaced

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        entries = self._acked.get(position.ledger_id)
        return entries is not None and position.entry_id in entries

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        """The unacknowledged messages of a half-acknowledged batch, as words; None when it is not one."""
        bits = self._partial.get(position)
        return None if bits is None else words_of_bits(bits)

    def ranges(self) -> Iterator[tuple[LedgerId, int, int]]:
        """Acknowledged runs after mark_delete: (ledger, first, last), inclusive, ascending."""
        for ledger_id in sorted(self._acked):
            for first, last in self._acked[ledger_id].ranges():
                yield ledger_id, first, last

    def next_unacked(self, position: Position) -> Position:
        """The first entry >= `position` that is not acknowledged and exists or may come to exist."""
        ledgers = self._ledgers
        if position <= self.mark_delete:
            position = ledgers.next_position(self.mark_delete)
        elif (known := ledgers.find(position.ledger_id)) is None or (
            known.sealed_end is not None and position.entry_id > known.sealed_end
        ):
            position = ledgers.next_position(position)
        elif position.entry_id < 0:
            position = Position(position.ledger_id, 0)
        while (entries := self._acked.get(position.ledger_id)) is not None:
            missing = entries.next_missing(position.entry_id)
            if missing == position.entry_id:
                break
            following = ledgers.next_position(Position(position.ledger_id, missing - 1))
            if following.ledger_id == position.ledger_id:
                return following
            position = following
        return position

    # Acknowledgements

    def ack(self, positions: Sequence[Position]) -> bool:
        """Acknowledges whole entries, in any order; returns whether anything changed."""
        mark_ledger, mark_entry = self.mark_delete
        ledger_of_limits = -2
        entries: EntrySet | None = None
        floor = limit = -1
        moved = 0
        before = count = self._acked_count
        fresh = self._fresh.positions
        partial = self._partial
        for position in positions:
            ledger_id, entry_id = position
            if ledger_id != ledger_of_limits:
                ledger_of_limits = ledger_id
                ledger = self._ledgers.find(ledger_id)
                limit = -1 if ledger is None or ledger_id < mark_ledger else ledger.entries - 1
                floor = mark_entry if ledger_id == mark_ledger else -1
                entries = self._acked.get(ledger_id)
            if not floor < entry_id <= limit:
                continue
            if entries is None:
                if entry_id == floor + 1 and ledger_id == mark_ledger:
                    # In order, as most acknowledgements are: only mark-delete moves.
                    floor = mark_entry = entry_id
                    moved += 1
                    if partial:
                        partial.pop(position, None)
                    continue
                entries = self._acked[ledger_id] = EntrySet()
            if entries.add(entry_id):
                count += 1
                fresh.append(position)
                if partial:
                    partial.pop(position, None)
        if count == before and not moved:
            return False
        if self.redeliveries:
            self.redeliveries.discard(positions)
        self._acked_count = count
        if moved:
            self.mark_delete = Position(mark_ledger, mark_entry)
        if count:
            self._advance()
        self.version += 1
        return True

    def ack_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledges messages of an entry: words, bit set = not acknowledged; missing words are zero.

        `batch_size` is the number of messages in the entry, 0 when the client does not tell it (C++ clients
        do not): then no bit after the last message is expected to be set. Adds to earlier acknowledgements.
        True when this call completes the acknowledgement of the entry.
        """
        ledger = self._ledgers.find(position.ledger_id)
        if ledger is None or not 0 <= position.entry_id < ledger.entries or self.is_acked(position):
            return False
        left = bits_of_words(ack_set[:ACK_SET_WORDS_MAX])
        if 0 < batch_size < left.bit_length():
            left &= (1 << batch_size) - 1
        known = self._partial.get(position)
        if known is not None:
            left &= known
        if not left:
            return self.ack((position,))
        if left != known:
            self._partial[position] = left
            self._fresh.partial.add(position)
            self.version += 1
        return False

    def ack_between(self, after: Position, before: Position) -> bool:
        """Acknowledges every existing entry after `after` and before `before`; whether anything changed."""
        if after <= self.mark_delete:
            return self.ack_cumulative(self._ledgers.previous_position(before))
        count = self._acked_count
        ledger = self._ledgers.find(after.ledger_id) or self._ledgers.following(after.ledger_id)
        while ledger is not None and ledger.ledger_id <= before.ledger_id:
            ledger_id = ledger.ledger_id
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            stop = before.entry_id if ledger_id == before.ledger_id else ledger.entries
            last = min(ledger.entries, stop) - 1
            if first <= last:
                entries = self._acked.setdefault(ledger_id, EntrySet())
                self._acked_count -= entries.count
                entries.add_range(first, last)
                self._acked_count += entries.count
                self._fresh.ranges.append((ledger_id, first, last))
            ledger = self._ledgers.following(ledger_id)
        if self._acked_count == count:
            return False
        self._advance()
        self._drop_covered_partial()
        if self.redeliveries:
            self.redeliveries.keep(lambda held: not self.is_acked(held))
        self.version += 1
        return True

    def ack_cumulative(self, position: Position) -> bool:
        """Acknowledges all entries up to and including `position`, at most up to the last durable one."""
        position = self._ledgers.clamp(position)
        if position <= self.mark_delete:
            return False
        self._move_mark(position)
        self._advance()
        # Entries acknowledged singly have left `_partial` by then: only here can any be covered.
        self._drop_covered_partial()
        if self.redeliveries:
            self.redeliveries.keep(lambda held: held > position)
        self.version += 1
        return True

    def reset(self, position: Position) -> None:
        """Makes `position` the next entry to deliver; forgets later acknowledgements."""
        ledgers = self._ledgers
        self.mark_delete = min(ledgers.previous_position(position), ledgers.last_position)
        self._drop_all()
        self._replaced = True
        self.version += 1

    def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replaces the numbers stored with the position."""
        self.properties = dict(properties)
        self._properties_changed = True
        self.version += 1

    def redelivered(self, positions: Iterable[Position]) -> bool:
        """Counts a redelivery of those entries that are not acknowledged; returns whether there were any."""
        before = self.version
        for position in positions:
            ledger = self._ledgers.find(position.ledger_id)
            exists = ledger is not None and 0 <= position.entry_id < ledger.entries
            if exists and not self.is_acked(position):
                self.redeliveries.add(position)
                self.version += 1
        return self.version != before

    def _move_mark(self, position: Position) -> None:
        """Sets mark-delete and drops the acknowledgements that it covers."""
        self.mark_delete = position
        mark_ledger, mark_entry = position
        acked = self._acked
        if acked:
            if len(acked) > 1 or mark_ledger not in acked:
                for ledger_id in [key for key in acked if key < mark_ledger]:
                    self._acked_count -= acked.pop(ledger_id).count
            entries = acked.get(mark_ledger)
            if entries is not None:
                count = entries.count
                entries.remove_upto(mark_entry)
                self._acked_count += entries.count - count
                if not entries.count:
                    del acked[mark_ledger]

    def _advance(self) -> None:
        """Moves mark-delete over acknowledged entries that follow it, across ledgers."""
        mark = self.mark_delete
        while self._acked:
            following = self._ledgers.next_position(mark)
            entries = self._acked.get(following.ledger_id)
            if entries is None:
                break
            missing = entries.next_missing(following.entry_id)
            if missing == following.entry_id:
                break
            mark = Position(following.ledger_id, missing - 1)
        if mark != self.mark_delete:
            self._move_mark(mark)

    def _drop_covered_partial(self) -> None:
        for position in [key for key in self._partial if self.is_acked(key)]:
            del self._partial[position]

    def _drop_all(self) -> None:
        self._acked.clear()
        self._acked_count = 0
        self._partial.clear()
        self._fresh = FreshAcks()
        self.redeliveries.clear()

    # Persistence

    def take_delta(self) -> CursorDelta:
        """The changes since the last `take_delta` or `snapshot`; starts a new delta."""
        mark = self.mark_delete
        delta = CursorDelta(
            mark,
            self._replaced,
            self._fresh.after(mark),
            {key: bits for key in self._fresh.partial if (bits := self._partial.get(key)) is not None},
            self.properties if self._properties_changed or self._replaced else None,
            self.redeliveries.take_changed(),
        )
        self._forget_delta()
        return delta

    def snapshot(self) -> CursorDelta:
        """The whole state, sharing the sets: to be encoded before the next change. Starts a new delta."""
        self._forget_delta()
        counts = self.redeliveries.counts
        return CursorDelta(self.mark_delete, True, self._acked, self._partial, self.properties, counts)

    def _forget_delta(self) -> None:
        self._fresh = FreshAcks()
        self.redeliveries.take_changed()
        self._replaced = self._properties_changed = False

    def apply(self, delta: CursorDelta) -> None:
        """Applies a delta or snapshot from before a restart. `settle` must follow the last one."""
        self.version = -1
        if delta.replaces:
            self._drop_all()
        for ledger_id, chunks in delta.acked.items():
            entries = self._acked.setdefault(ledger_id, EntrySet())
            before = entries.count
            for number, bits in chunks.chunks.items():
                entries.add_chunk(number, bits)
            self._acked_count += entries.count - before
            if not entries.count:
                del self._acked[ledger_id]
        self._partial.update(delta.partial)
        self.redeliveries.update(delta.redeliveries)
        if delta.properties is not None:
            self.properties = dict(delta.properties)
        self._move_mark(delta.mark_delete)

    def settle(self) -> None:
        """To be called after the last `apply`: adapts the state to the ledgers that exist.

        Ledgers that the state does not cover may be missing: they were trimmed after acknowledgements that a
        crash lost. They count as acknowledged.
        """
        if len(self._ledgers):
            first = Position(self._ledgers[0].ledger_id, -1)
            if self.mark_delete < first:
                self._move_mark(first)
        for ledger_id in [key for key in self._acked if self._ledgers.find(key) is None]:
            self._acked_count -= self._acked.pop(ledger_id).count
        for position in [key for key in self._partial if self._ledgers.find(key.ledger_id) is None]:
            del self._partial[position]
        self._advance()
        self._drop_covered_partial()
        self.redeliveries.keep(lambda held: not self.is_acked(held))
        self.version = 0

    def check(self) -> None:
        """Asserts the invariants."""
        if self.version < 0:
            return
        for ledger_id, entries in self._acked.items():
            entries.check()
            assert entries.count, "an empty set was kept"
            assert ledger_id >= self.mark_delete.ledger_id
            if ledger_id == self.mark_delete.ledger_id:
                first = next(entries.ranges())[0]
                assert first > self.mark_delete.entry_id + 1, "mark-delete could be further"
        assert self._acked_count == sum(entries.count for entries in self._acked.values())
        for position, bits in self._partial.items():
            assert bits > 0
            assert not self.is_acked(position)
