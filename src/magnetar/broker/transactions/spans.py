"""The places of transactions' entries in one topic, and which part of the topic is visible (pure).

Readers get all entries before the first one of the oldest open transaction, except those of aborted
transactions. An entry of a transaction that is neither open nor aborted is committed: so a transaction is in
the durable header before its entry is appended, and the entries of an aborted one are durable here before its
header is deleted.
"""

from __future__ import annotations

from magnetar.base.ids import LedgerId, Position
from magnetar.broker.transactions.ids import TxnId
from magnetar.managedlog.visible import Visible


class TransactionSpans:
    """The spans of one topic."""

    def __init__(self, visible: Visible | None = None) -> None:
        self.visible = visible or Visible()
        """For the topic's log."""
        self._open: dict[TxnId, list[tuple[LedgerId, int, int]]] = {}
        """Ledger, first, last entry, ascending; transactions in the order of their first entries."""

    def __len__(self) -> int:
        """Open transactions that have entries here."""
        return len(self._open)

    def __contains__(self, txn_id: TxnId) -> bool:
        return txn_id in self._open

    @property
    def oldest(self) -> TxnId | None:
        """The open transaction that holds readers back."""
        return next(iter(self._open), None)

    def first_of(self, txn_id: TxnId) -> Position | None:
        """Its first entry here."""
        spans = self._open.get(txn_id)
        return Position(spans[0][0], spans[0][1]) if spans else None

    def last_of(self, txn_id: TxnId) -> Position | None:
        """Its last entry here."""
        spans = self._open.get(txn_id)
        return Position(spans[-1][0], spans[-1][2]) if spans else None

    def behind(self, position: Position) -> list[TxnId]:
        """Transactions with entries after this one."""
        return [txn_id for txn_id, spans in self._open.items() if (spans[-1][0], spans[-1][2]) > position]

    def count_of(self, txn_id: TxnId) -> int:
        """Its entries here."""
        return sum(last - first + 1 for _, first, last in self._open.get(txn_id, ()))

    def appended(self, txn_id: TxnId, position: Position, count: int) -> None:
        """The topic appended these entries of an open transaction; called in the order of positions."""
        ledger_id, first = position
        spans = self._open.get(txn_id)
        if spans is None:
            self._open[txn_id] = [(ledger_id, first, first + count - 1)]
            if self.visible.end is None:
                self.visible.end, self.visible.held_by = position, txn_id
        elif spans[-1][0] == ledger_id and spans[-1][2] == first - 1:
            spans[-1] = ledger_id, spans[-1][1], first + count - 1
        else:
            spans.append((ledger_id, first, first + count - 1))

    def committed(self, txn_id: TxnId) -> bool:
        """Its entries may be read; whether it had any."""
        spans = self._open.pop(txn_id, None)
        if spans is None:
            return False
        self._move_end()
        return True

    def aborted(self, txn_id: TxnId) -> list[tuple[LedgerId, int, int]]:
        """The transaction's entries are hidden for good: returns them as ledger, first, last."""
        spans = self._open.pop(txn_id, [])
        for ledger_id, first, last in spans:
            self.visible.hide(ledger_id, first, last)
        self._move_end()
        return spans

    def _move_end(self) -> None:
        oldest = self.oldest
        self.visible.end = None if oldest is None else self.first_of(oldest)
        self.visible.held_by = oldest

    def check(self) -> None:
        """Asserts what must always hold."""
        self.visible.check()
        firsts = [spans[0] for spans in self._open.values()]
        assert firsts == sorted(firsts), "the oldest one is not the first"
        end = self.visible.end
        assert (end is None) == (not firsts)
        assert self.visible.held_by == self.oldest
        assert end is None or end == firsts[0][:2]
        for spans in self._open.values():
            assert spans == sorted(spans)
            for ledger_id, first, last in spans:
                assert first <= last
                assert not any(
                    self.visible.is_hidden(Position(ledger_id, entry)) for entry in range(first, last + 1)
                )
