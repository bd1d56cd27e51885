"""Acknowledgements of one subscription that wait for their transactions to commit (pure).

A message is in at most one transaction, so that only one can acknowledge it. Pending messages are not
delivered: for dispatchers they count as acknowledged, by `PendingView`.

    (none) ── acknowledged ──▶ waits ── commit ──▶ (none), and acknowledged
                                 └──── abort ────▶ goes back ── given back ──▶ (none), and sent again

What an aborted transaction acknowledged goes back in pieces, in ascending order. Until its piece an entry is
not sent, as if it were waiting still; but another transaction may acknowledge it at once, and has it then.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from magnetar.base.ids import Position
from magnetar.broker.errors import TransactionConflictError
from magnetar.broker.transactions.acks import Part, TxnAcks, acked_bits
from magnetar.broker.transactions.ids import TxnId
from magnetar.managedlog.cursors.ack_words import bits_of_words, words_of_bits


class PendingCursor(Protocol):
    """The committed acknowledgements, as a dispatcher asks for them too."""

    @property
    def mark_delete(self) -> Position: ...
    @property
    def has_holes(self) -> bool: ...
    @property
    def has_redeliveries(self) -> bool: ...
    def is_acked(self, position: Position) -> bool: ...
    def ack_set(self, position: Position) -> tuple[int, ...] | None: ...
    def next_unacked(self, position: Position) -> Position: ...
    def may_know_from(self, position: Position) -> bool: ...
    def redelivery_count(self, position: Position) -> int: ...
    def redelivered(self, positions: Sequence[Position]) -> None: ...


class PendingAcks:
    """The pending acknowledgements of one subscription."""

    def __init__(self) -> None:
        self.of: dict[TxnId, TxnAcks] = {}
        """By transaction; the transactions hold the same objects."""
        self._whole: dict[Position, TxnId] = {}
        self._parts: dict[Position, dict[TxnId, Part]] = {}
        self._upto: TxnId | None = None
        """The transaction with a cumulative acknowledgement."""
        self._going_back: dict[TxnId, list[Position]] = {}
        """What aborted transactions acknowledged and is not given back yet: heaps, the oldest abort first."""

    def __bool__(self) -> bool:
        return bool(self.of or self._going_back)

    @property
    def upto(self) -> Position | None:
        """Position of the pending cumulative acknowledgement."""
        return None if self._upto is None else self.of[self._upto].upto

    def recovered(self, txn_id: TxnId, acks: TxnAcks) -> None:
        """The acknowledgements in a header; an earlier process admitted them."""
        self.of[txn_id] = acks
        self._whole.update(dict.fromkeys(acks.whole, txn_id))
        for position, part in acks.parts.items():
            self._parts.setdefault(position, {})[txn_id] = part
        if acks.upto is not None:
            self._upto = txn_id

    # -- admitting ---------------------------------------------------------------------------------

    def add(
        self,
        txn_id: TxnId,
        acks: TxnAcks,
        whole: Sequence[Position],
        parts: Sequence[tuple[Position, Sequence[int], int]],
        cursor: PendingCursor,
    ) -> list[Position]:
        """Adds individual acknowledgements of a transaction: entries, and batches with the protocol's words
        and their numbers of messages from the log. All or none; returns the entries that this completes.

        A repetition within the same transaction is accepted. Raises TransactionConflictError.
        """
        found: dict[Position, Part] = {}
        for position in whole:
            self._admit_whole(txn_id, position, cursor)
        for position, words, size in parts:
            bits = acked_bits(words, size)
            before = found.get(position) or acks.parts.get(position)
            self._admit_part(txn_id, position, bits, cursor)
            found[position] = (bits if before is None else bits | before[0]), size
        self.of[txn_id] = acks
        taken = []
        for position in whole:
            acks.parts.pop(position, None)
            self._parts.get(position, {}).pop(txn_id, None)
            acks.whole.add(position)
            self._whole[position] = txn_id
            taken.append(position)
        for position, part in found.items():
            acks.parts[position] = part
            holders = self._parts.get(position)
            if holders is None:
                self._parts[position] = {txn_id: part}
            else:
                holders[txn_id] = part
            if self.left_of(position, cursor) == 0:
                taken.append(position)
        return taken

    def _admit_whole(self, txn_id: TxnId, position: Position, cursor: PendingCursor) -> None:
        holder = self._whole.get(position)
        if holder == txn_id:
            return
        others = self._parts.get(position, {}).keys() - {txn_id}
        if self._going_back:
            others -= self._going_back.keys()
            holder = None if holder in self._going_back else holder
        if holder is not None or others or self._is_before_upto(position, txn_id):
            raise TransactionConflictError(
                f"{position} is acknowledged in transaction {holder or next(iter(others), self._upto)}"
            )
        if cursor.is_acked(position):
            raise TransactionConflictError(f"{position} is acknowledged already")

    def _admit_part(self, txn_id: TxnId, position: Position, bits: int, cursor: PendingCursor) -> None:
        # One command may name 8,192 batches, which are one piece of work. So what is rare costs one look.
        holder = self._whole.get(position)
        if (holder is not None and holder != txn_id and holder not in self._going_back) or (
            self._upto is not None and self._is_before_upto(position, txn_id)
        ):
            raise TransactionConflictError(
                f"{position} is acknowledged in transaction {holder or self._upto}"
            )
        if (holders := self._parts.get(position)) is not None:
            for other, (taken, _) in holders.items():
                if other != txn_id and taken & bits and other not in self._going_back:
                    raise TransactionConflictError(
                        f"messages of the batch {position} are acknowledged in transaction {other}"
                    )
        left = cursor.ack_set(position)
        if cursor.is_acked(position) or (left is not None and bits & ~bits_of_words(left)):
            raise TransactionConflictError(f"messages of the batch {position} are acknowledged already")

    def _is_before_upto(self, position: Position, txn_id: TxnId) -> bool:
        """Whether another transaction acknowledges it with all before."""
        upto = self.upto
        return upto is not None and self._upto != txn_id and position <= upto

    def add_upto(
        self,
        txn_id: TxnId,
        acks: TxnAcks,
        position: Position,
        part: tuple[Sequence[int], int] | None,
        cursor: PendingCursor,
    ) -> None:
        """A cumulative acknowledgement of a transaction, of a batch with the protocol's words and its size.
        Raises TransactionConflictError."""
        if self._upto is not None and self._upto != txn_id:
            raise TransactionConflictError(
                f"transaction {self._upto} has a cumulative acknowledgement on this subscription"
            )
        if position <= cursor.mark_delete:
            raise TransactionConflictError(f"{position} is acknowledged already")
        for other, held in self.of.items():
            if other != txn_id and any(at <= position for at in (*held.whole, *held.parts)):
                raise TransactionConflictError(f"transaction {other} acknowledges what is before {position}")
        if acks.upto is not None and position < acks.upto:
            raise TransactionConflictError(
                f"{position} is before {acks.upto}, which the transaction acknowledges"
            )
        self.of[txn_id] = acks
        acks.upto, self._upto = position, txn_id
        acks.upto_part = None if part is None else (acked_bits(*part), part[1])

    # -- what dispatchers see ----------------------------------------------------------------------

    def is_pending(self, position: Position) -> bool:
        """Whether the whole entry waits for transactions."""
        if position in self._whole:
            return True
        upto = self.upto
        if upto is None or position > upto:
            return False
        assert self._upto is not None
        return position < upto or self.of[self._upto].upto_part is None

    def bits_of(self, position: Position) -> tuple[int, int] | None:
        """Messages of the batch that wait, and its size; None: none do, or all."""
        bits = size = 0
        if (holders := self._parts.get(position)) is not None:
            for taken, messages in holders.values():
                bits |= taken
                size = messages if messages > size else size
        if self._upto is not None and (upto := self.of[self._upto]).upto == position and upto.upto_part:
            bits, size = bits | upto.upto_part[0], max(size, upto.upto_part[1])
        return (bits, size) if size else None

    def left_of(self, position: Position, cursor: PendingCursor) -> int | None:
        """Messages of the batch that neither the cursor nor a transaction has, a bit each; None: nothing of
        it is pending."""
        waiting = self.bits_of(position)
        if waiting is None:
            return None
        bits, size = waiting
        left = cursor.ack_set(position)
        return ((1 << size) - 1 if left is None else bits_of_words(left)) & ~bits

    # -- the end -----------------------------------------------------------------------------------

    def take(self, txn_id: TxnId) -> TxnAcks | None:
        """The transaction has committed: what it acknowledged, which waits no longer."""
        acks = self.of.pop(txn_id, None)
        if acks is None:
            return None
        for position in acks.whole:
            self._whole.pop(position, None)
        for position in acks.parts:
            self._leave_part(txn_id, position)
        if self._upto == txn_id:
            self._upto = None
        return acks

    def give_back(self, txn_id: TxnId) -> TxnAcks | None:
        """The transaction was aborted: what it acknowledged, which goes back by `given_back`. A cumulative
        acknowledgement has gone back on return."""
        acks = self.of.pop(txn_id, None)
        if acks is None:
            return None
        if self._upto == txn_id:
            self._upto = None
        back = [*acks.whole, *acks.parts]
        heapq.heapify(back)
        self._going_back[txn_id] = back
        return acks

    def given_back(self, count_max: int) -> tuple[list[Position], bool]:
        """The next entries and batches that go back, ascending, at most `count_max` > 0, all of one
        transaction; and whether these are its last ones. They wait for it no longer, but perhaps for another
        one."""
        txn_id, back = next(iter(self._going_back.items()))
        given = [heapq.heappop(back) for _ in range(min(count_max, len(back)))]
        for position in given:
            if self._whole.get(position) == txn_id:
                del self._whole[position]
            self._leave_part(txn_id, position)
        if not back:
            del self._going_back[txn_id]
        return given, not back

    @property
    def goes_back(self) -> bool:
        """Whether there is more to be given back."""
        return bool(self._going_back)

    def _leave_part(self, txn_id: TxnId, position: Position) -> None:
        holders = self._parts.get(position)
        if holders is not None:
            holders.pop(txn_id, None)
            if not holders:
                del self._parts[position]

    def check(self) -> None:
        """Asserts what must always hold."""
        for txn_id, acks in self.of.items():
            assert all(self._whole[position] == txn_id for position in acks.whole)
            assert all(self._parts[position][txn_id] == part for position, part in acks.parts.items())
            assert (acks.upto is not None) == (self._upto == txn_id)
        assert not self.of.keys() & self._going_back.keys(), "it goes back, and may still commit"
        back = {txn_id: set(positions) for txn_id, positions in self._going_back.items()}
        assert len(self._whole) == sum(len(acks.whole) for acks in self.of.values()) + sum(
            position in back.get(holder, ()) for position, holder in self._whole.items()
        )
        for position, holders in self._parts.items():
            seen = 0
            for holder, (bits, _) in holders.items():
                if holder not in self.of:
                    assert position in back[holder], f"{position} of {holder} is never given back"
                    continue
                assert not seen & bits, f"{position} has a message in two transactions"
                seen |= bits


class PendingView:
    """A cursor as dispatchers see it: what waits for a transaction counts as acknowledged."""

    __slots__ = ("_cursor", "_pending")

    def __init__(self, cursor: PendingCursor, pending: PendingAcks) -> None:
        self._cursor = cursor
        self._pending = pending

    @property
    def mark_delete(self) -> Position:
        return self._cursor.mark_delete

    @property
    def has_holes(self) -> bool:
        return bool(self._pending) or self._cursor.has_holes

    @property
    def has_redeliveries(self) -> bool:
        return self._cursor.has_redeliveries

    def is_acked(self, position: Position) -> bool:
        pending = self._pending
        if self._cursor.is_acked(position) or pending.is_pending(position):
            return True
        return pending.left_of(position, self._cursor) == 0

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        left = self._pending.left_of(position, self._cursor)
        return self._cursor.ack_set(position) if left is None else words_of_bits(left)

    def next_unacked(self, position: Position) -> Position:
        return self._cursor.next_unacked(position)

    def may_know_from(self, position: Position) -> bool:
        return bool(self._pending) or self._cursor.may_know_from(position)

    def redelivery_count(self, position: Position) -> int:
        return self._cursor.redelivery_count(position)

    def redelivered(self, positions: Sequence[Position]) -> None:
        self._cursor.redelivered(positions)
