"""Counters of a coordinator's transactions."""

from __future__ import annotations

from typing import Final

from magnetar.broker.transactions.ids import TxnState
from magnetar.broker.transactions.transaction import Transaction
from magnetar.observability.histogram import Histogram

_BOUNDS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0)


class Counts:
    """Since the process began."""

    def __init__(self) -> None:
        self.created = 0
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        self.open_s = Histogram(_BOUNDS_S)
        """From the beginning to the decision."""

    def ended(self, txn: Transaction, now_ms: float) -> None:
        """A transaction is decided."""
        if txn.state is TxnState.COMMITTED:
            self.committed += 1
        else:
            self.aborted += 1
        self.open_s.add(txn.age_ms(now_ms) / 1_000)
