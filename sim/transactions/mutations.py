"""Rules of transactions that need a crash or a wait to be missed, each with a way to break it.

The others are text, with unit tests: `tools/transaction_rules.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.kept_log import LoggedTransactions
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TxnRules
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.visible import Visible
from sim.breaking import Mutation
from sim.rules import RulesInForce


class _DecidesAtOnce(TxnRules):
    """What topics took may not be durable."""

    def settles_first(self) -> bool:
        return False


class _CursorsLater(TxnRules):
    """Cursors are not flushed."""

    def keeps_cursors_first(self) -> bool:
        return False


class _HiddenLater(TxnRules):
    """Hidden entries are not kept."""

    def keeps_hidden_first(self) -> bool:
        return False


class _ForgetsAcks(TxnRules):
    """What was acknowledged in open transactions is forgotten."""

    def acks_to_recover(self, transactions: Collection[Transaction]) -> Collection[Transaction]:
        return ()


class _StrikesNone(TxnRules):
    def strikes_first(self) -> bool:
        return False


class _ReadsOn(Visible):
    __slots__ = ()

    def ends_within(self, runs: Sequence[EntryRun]) -> bool:
        return self.end is not None and (runs[0].ledger_id, runs[0].first_entry) >= self.end


class _ShowsTooMuch(TxnRules):
    def visible(self) -> Visible:
        return _ReadsOn()


class _NoOutcome(LoggedTransactions):
    """What should be made durable is not."""

    async def end(
        self, coordinator: Coordinator, txns: Iterable[Transaction], pages: Iterable[int], *, again: bool
    ) -> None:
        await super().end(coordinator, txns, (), again=again)


class _NoDoubt(LoggedTransactions):
    """The record that got no answer is not looked for."""

    async def settle_doubt(self) -> None:
        self.in_doubt = False


class _ReservesInMemory(LoggedTransactions):
    async def reserve(self, number: int, upto: int, version: int) -> int:
        return version


class _HidesTheFirst(LoggedTransactions):
    """The store keeps the entries of one ledger of several."""

    async def hide(self, log_name: str, hidden: Mapping[LedgerId, EntrySet]) -> None:
        for ledger, entries in list(hidden.items())[:1]:
            await super().hide(log_name, {ledger: entries})


TRANSACTION_MUTATIONS: Final = {
    "txn-settled": Mutation(
        "messages of a transaction are durable before it is decided",
        [(RulesInForce, "txns", _DecidesAtOnce())],
        found_by=14,
        scenario="transactions",
    ),
    "txn-outcomes": Mutation(
        "an outcome is durable before its header goes",
        [(RulesInForce, "txns_kept", _NoOutcome)],
        found_by=5,
        scenario="transactions",
    ),
    "txn-doubt": Mutation(
        "a record that got no answer is looked for before the next one",
        [(RulesInForce, "txns_kept", _NoDoubt)],
        found_by=16,
        scenario="transactions",
    ),
    "txn-cursors": Mutation(
        "cursors are durable before the header goes",
        [(RulesInForce, "txns", _CursorsLater())],
        found_by=33,
        scenario="transactions",
    ),
    "txn-hidden": Mutation(
        "hidden entries are durable before the header goes",
        [(RulesInForce, "txns", _HiddenLater())],
        found_by=1,
        scenario="transactions",
    ),
    "txn-acks": Mutation(
        "acknowledgements of open transactions are known after a restart",
        [(RulesInForce, "txns", _ForgetsAcks())],
        found_by=6,
        scenario="transactions",
    ),
    "txn-numbers": Mutation(
        "numbers are set aside durably before one is given out",
        [(RulesInForce, "txns_kept", _ReservesInMemory)],
        found_by=1,
        scenario="transactions",
    ),
    "txn-all-ledgers": Mutation(
        "hidden entries of all ledgers are kept",
        [(RulesInForce, "txns_kept", _HidesTheFirst)],
        found_by=1,
        scenario="transactions",
    ),
    "txn-read-on": Mutation(
        "a read never goes on behind the first open transaction",
        [(RulesInForce, "txns", _ShowsTooMuch())],
        found_by=109,
        scenario="transactions",
    ),
    "txn-strike": Mutation(
        "a seek strikes its subscription's acknowledgements from headers that stay",
        [(RulesInForce, "txns", _StrikesNone())],
        found_by=124,
        scenario="transactions",
    ),
}
