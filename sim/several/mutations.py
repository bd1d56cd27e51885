"""Rules of transactions of several brokers, each with a way to break it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import header_path
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TxnRules
from magnetar.managedlog.log_metadata import log_path
from magnetar.metadata.store import Check, Value
from sim.breaking import Mutation
from sim.rules import RulesInForce


class _DecidesBeforeClosing(TxnRules):
    """No topic is asked."""

    def closes_topics_first(self) -> bool:
        return False


class _HeaderGoes(TxnRules):
    """The header goes while topics have parts."""

    def header_stays(self) -> bool:
        return False


class _ClosesAtOnce(TxnRules):
    """A topic is closed while what it took is not durable."""

    def settles_first(self) -> bool:
        return False


class _TakesLate(TxnRules):
    """A SEND or ACK after the closing."""

    def takes(self, *, closed: bool) -> bool:
        return True


class _ClaimsNothing(KeptParts):
    """A part is changed when there is something to say, and not before."""

    async def write_part(
        self, log_name: str, id_: TxnId, data: bytes, version: int, condition: Check | None = None
    ) -> int:
        if condition is not None and condition.path == log_path(log_name):
            return version
        return await super().write_part(log_name, id_, data, version, condition)


class _AnswersBeforeStoring(KeptParts):
    """An acknowledgement is answered before it is stored."""

    async def write_part(
        self, log_name: str, id_: TxnId, data: bytes, version: int, condition: Check | None = None
    ) -> int:
        if condition is not None and condition.path == header_path(id_):
            return version
        return await super().write_part(log_name, id_, data, version, condition)


class _FindsNoParts(KeptParts):
    """A topic that is loaded knows of no transaction."""

    async def parts(self, log_name: str) -> AsyncIterator[tuple[TxnId, Value]]:
        for part in list[tuple[TxnId, Value]]():
            yield part


class _WritesOver(KeptParts):
    """A former coordinator writes over what another one wrote."""

    async def write(self, txn: Transaction, header: bytes) -> int:
        found = await self.header(txn.id)
        txn.version = None if found is None else found[1]
        return await super().write(txn, header)


class _FindsNoLateOnes(KeptParts):
    """Transactions that a former owner began late are not found."""

    async def latest_header(self, id_: TxnId) -> tuple[bytes, int] | None:
        return None


class _StoresAnyway(KeptParts):
    """An acknowledgement is stored though its transaction has ended."""

    async def write_part(
        self, log_name: str, id_: TxnId, data: bytes, version: int, condition: Check | None = None
    ) -> int:
        kept = None if condition is not None and condition.path == header_path(id_) else condition
        return await super().write_part(log_name, id_, data, version, kept)


SEVERAL_MUTATIONS: Final = {
    "txns-closed": Mutation(
        "every topic takes nothing more before the header is decided",
        [(RulesInForce, "txns", _DecidesBeforeClosing())],
        found_by=13,
        scenario="several",
    ),
    "txns-over": Mutation(
        "a header stays until every topic has done what was decided",
        [(RulesInForce, "txns", _HeaderGoes())],
        found_by=2,
        scenario="several",
    ),
    "txns-claim": Mutation(
        "a part is claimed before its topic takes anything",
        [(RulesInForce, "parts_kept", _ClaimsNothing)],
        found_by=14,
        scenario="several",
    ),
    "txns-durable": Mutation(
        "a topic is closed once all that it took is durable",
        [(RulesInForce, "txns", _ClosesAtOnce())],
        found_by=39,
        scenario="several",
    ),
    "txns-acks": Mutation(
        "an acknowledgement is in the part before it is answered",
        [(RulesInForce, "parts_kept", _AnswersBeforeStoring)],
        found_by=9,
        scenario="several",
    ),
    "txns-recovered": Mutation(
        "a topic that is loaded finds its parts",
        [(RulesInForce, "parts_kept", _FindsNoParts)],
        found_by=0,
        scenario="several",
    ),
    "txns-late": Mutation(
        "nothing is taken after the closing",
        [(RulesInForce, "txns", _TakesLate())],
        found_by=1,
        scenario="several",
    ),
    "txns-overtaken": Mutation(
        "a header is written where it is as its coordinator knows it",
        [(RulesInForce, "parts_kept", _WritesOver)],
        found_by=32,
        scenario="several",
    ),
    "txns-adopted": Mutation(
        "transactions that a former owner began late are found",
        [(RulesInForce, "parts_kept", _FindsNoLateOnes)],
        found_by=13,
        scenario="several",
    ),
    "txns-ended": Mutation(
        "an acknowledgement is stored while its transaction is open",
        [(RulesInForce, "parts_kept", _StoresAnyway)],
        found_by=44,
        scenario="several",
    ),
}
