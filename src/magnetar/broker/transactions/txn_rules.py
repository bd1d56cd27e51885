"""The rules of transactions that need a crash or a wait to be missed (pure).

They are handed to `Transactions` as an object, so that the simulator can hand in broken ones and show that
each is needed (`sim/transactions/mutations.py`, `sim/several/mutations.py`). What must be durable before what
is in the records too, which are handed in as `KeptTransactions`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.visible import Visible


class TxnRules:
    """What comes before what."""

    __slots__ = ()

    def settles_first(self) -> bool:
        """Whether all that topics took of a transaction is durable, or lost, before it is decided and before
        a topic says that it takes nothing more. What is lost later would be missing in a commit."""
        return True

    def keeps_hidden_first(self) -> bool:
        """Whether the entries of an aborted transaction are stored as hidden before its header goes: without
        a header they would count as committed."""
        return True

    def keeps_cursors_first(self) -> bool:
        """Whether the cursors of acknowledgements are durable before the header goes, which names them."""
        return True

    def acks_to_recover(self, transactions: Collection[Transaction]) -> Collection[Transaction]:
        """Those of a loaded topic's transactions whose acknowledgements it knows again: all."""
        return transactions

    def strikes_first(self) -> bool:
        """Whether a seek takes the acknowledgements of its subscription out of headers that stay: after a
        crash they would count again."""
        return True

    def visible(self) -> Visible:
        """What readers get of a topic: nothing behind the first entry of an open transaction."""
        return Visible()

    # Of several brokers

    def closes_topics_first(self) -> bool:
        """Whether every topic has said that it takes nothing more before the header is decided."""
        return True

    def header_stays(self) -> bool:
        """Whether a header stays until every topic has done what was decided: it is all that says so."""
        return True

    def takes(self, *, closed: bool) -> bool:
        """Whether a topic takes a message or an acknowledgement of a transaction. `closed`: it has said that
        it takes nothing more, or is about to, or the transaction is held back."""
        return not closed


TXN_RULES: Final = TxnRules()
