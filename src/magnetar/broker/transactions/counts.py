"""What is counted of a broker's transactions."""

from __future__ import annotations

from magnetar.broker.transactions.ids import TxnState
from magnetar.broker.transactions.transaction import Transaction


class Counts:
    """Since the process began."""

    def __init__(self) -> None:
        self.created = 0
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    def ended(self, txn: Transaction, now_ms: float) -> None:
        """A transaction is decided."""
        if txn.state is TxnState.COMMITTED:
            self.committed += 1
        else:
            self.aborted += 1
