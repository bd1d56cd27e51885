"""Rules of transactions that need a crash or a wait to be missed, each with a way to break it.

The others are text, with unit tests: `tools/transaction_rules.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.resolving import Resolving
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.visible import Visible
from sim.breaking import Mutation

_end: Final = KeptTransactions.end


async def _nothing(self: object, *arguments: Any, **more: Any) -> None:
    """What should be made durable is not."""


async def _durable_at_once(self: Resolving, txn: Transaction) -> bool:
    return True


async def _no_outcome(
    self: KeptTransactions,
    coordinator: Coordinator,
    txns: Iterable[Transaction],
    pages: Iterable[int],
    *,
    again: bool,
) -> None:
    await _end(self, coordinator, txns, (), again=again)


async def _header_twice(
    self: KeptTransactions,
    coordinator: Coordinator,
    txns: Iterable[Transaction],
    pages: Iterable[int],
    *,
    again: bool,
) -> None:
    await _end(self, coordinator, txns, pages, again=False)


async def _keep_hidden_only(self: TopicTransactions, txn: Transaction) -> None:
    """Cursors are not flushed."""
    if ledgers := self._unkept.get(txn.id):
        await self._keep_hidden(ledgers)
        self._unkept.pop(txn.id, None)


async def _keep_cursors_only(self: TopicTransactions, txn: Transaction) -> None:
    """Hidden entries are not kept."""
    self._unkept.pop(txn.id, None)


async def _reserve_in_memory(self: KeptTransactions, number: int, upto: int, version: int) -> int:
    return version


async def _hide_the_first(self: KeptTransactions, log_name: str, hidden: Any) -> None:
    """The store keeps the entries of one ledger of several."""
    for ledger, entries in list(hidden.items())[:1]:
        await _hide(self, log_name, {ledger: entries})


_hide: Final = KeptTransactions.hide


def _no_acks(self: TopicTransactions, transactions: Collection[Transaction]) -> None:
    """What was acknowledged in open transactions is forgotten."""


def _starts_behind(visible: Visible, runs: Any) -> bool:
    return visible.end is not None and (runs[0].ledger_id, runs[0].first_entry) >= visible.end


async def _strikes_none(self: Resolving, topic: str, subscription: str) -> bool:
    return False


TRANSACTION_MUTATIONS: Final = {
    "txn-settled": Mutation(
        "messages of a transaction are durable before it is decided",
        [(Resolving, "durable", _durable_at_once)],
        found_by=5,
        scenario="transactions",
    ),
    "txn-outcomes": Mutation(
        "an outcome is durable before its header goes",
        [(KeptTransactions, "end", _no_outcome)],
        found_by=5,
        scenario="transactions",
    ),
    "txn-end-twice": Mutation(
        "headers that are gone are left out of the next try",
        [(KeptTransactions, "end", _header_twice)],
        found_by=139,
        scenario="transactions",
    ),
    "txn-cursors": Mutation(
        "cursors are durable before the header goes",
        [(TopicTransactions, "keep", _keep_hidden_only)],
        found_by=3,
        scenario="transactions",
    ),
    "txn-hidden": Mutation(
        "hidden entries are durable before the header goes",
        [(TopicTransactions, "keep", _keep_cursors_only)],
        found_by=0,
        scenario="transactions",
    ),
    "txn-acks": Mutation(
        "acknowledgements of open transactions are known after a restart",
        [(TopicTransactions, "recover_acks", _no_acks)],
        found_by=5,
        scenario="transactions",
    ),
    "txn-numbers": Mutation(
        "numbers are set aside durably before one is given out",
        [(KeptTransactions, "reserve", _reserve_in_memory)],
        found_by=0,
        scenario="transactions",
    ),
    "txn-all-ledgers": Mutation(
        "hidden entries of all ledgers are kept",
        [(KeptTransactions, "hide", _hide_the_first)],
        found_by=1,
        scenario="transactions",
    ),
    "txn-read-on": Mutation(
        "a read never goes on behind the first open transaction",
        [(Visible, "ends_within", _starts_behind)],
        found_by=138,
        scenario="transactions",
    ),
    "txn-strike": Mutation(
        "a seek strikes its subscription's acknowledgements from headers that stay",
        [(Resolving, "strike", _strikes_none)],
        found_by=161,
        scenario="transactions",
    ),
}
