"""Rules of transactions of several brokers, each with a way to break it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import Mirror, TopicPart
from magnetar.broker.transactions.part_waits import PartWaits
from magnetar.broker.transactions.part_writing import ClaimedLog, PartWriting
from magnetar.broker.transactions.participants import Participants
from magnetar.broker.transactions.several import SharedTransactions
from magnetar.broker.transactions.topic_side import TopicSide
from magnetar.broker.transactions.transaction import Transaction
from magnetar.metadata.store import Stat, Value
from sim.breaking import Mutation


async def _closed_at_once(self: SharedTransactions, txn: Transaction) -> bool:
    """No topic is asked."""
    return True


async def _over_at_once(
    self: PartWaits,
    txn: Transaction,
    look: Callable[[TopicPart | None], bool],
    check: Callable[[Transaction], None],
    until_ms: float = math.inf,
) -> None:
    """The header goes while topics have parts."""
    if txn.state.value == "OPEN":
        await _wait(self, txn, look, check, until_ms)


_wait: Final = PartWaits.wait


async def _no_claim(self: PartWriting, mirror: Mirror, log: ClaimedLog) -> None:
    """A part is changed when there is something to say, and not before."""
    if mirror.revision == 1:
        mirror.saved = 1
        return
    await _claim(self, mirror, log)


_claim: Final = PartWriting.claim


async def _settled_at_once(self: Participants, topic: Topic, mirror: Mirror) -> None:
    """A topic is closed while what it took is not durable."""


async def _saved_at_once(self: PartWriting, mirror: Mirror) -> None:
    """An acknowledgement is answered before it is stored."""
    if mirror.durable is not None:
        await _save(self, mirror)


_save: Final = PartWriting.save


async def _no_parts(self: KeptParts, log_name: str) -> Any:
    """A topic that is loaded knows of no transaction."""
    for part in list[tuple[TxnId, Value]]():
        yield part


def _let_late(mirror: Mirror, who: Any, *, held: bool = False) -> None:
    """A SEND or ACK after the closing."""


async def _any_version(self: KeptParts, txn: Transaction, header: bytes) -> Stat:
    """A former coordinator writes over what another one wrote."""
    found = await self.header(txn.id)
    txn.version = None if found is None else found[1]
    return await _write_header(self, txn, header)


_write_header: Final = KeptParts.write


async def _knows_all(self: SharedTransactions, coordinator: Any, id_: Any) -> None:
    """Transactions that a former owner began late are not looked for."""


SEVERAL_MUTATIONS: Final = {
    "txns-closed": Mutation(
        "every topic takes nothing more before the header is decided",
        [(SharedTransactions, "_closed", _closed_at_once)],
        found_by=13,
        scenario="several",
    ),
    "txns-over": Mutation(
        "a header stays until every topic has done what was decided",
        [(PartWaits, "wait", _over_at_once)],
        found_by=2,
        scenario="several",
    ),
    "txns-claim": Mutation(
        "a part is claimed before its topic takes anything",
        [(PartWriting, "claim", _no_claim)],
        found_by=14,
        scenario="several",
    ),
    "txns-durable": Mutation(
        "a topic is closed once all that it took is durable",
        [(Participants, "_settled_in", _settled_at_once)],
        found_by=39,
        scenario="several",
    ),
    "txns-acks": Mutation(
        "an acknowledgement is in the part before it is answered",
        [(PartWriting, "save", _saved_at_once)],
        found_by=9,
        scenario="several",
    ),
    "txns-recovered": Mutation(
        "a topic that is loaded finds its parts",
        [(KeptParts, "parts", _no_parts)],
        found_by=0,
        scenario="several",
    ),
    "txns-late": Mutation(
        "nothing is taken after the closing",
        [(TopicSide, "_check_open", staticmethod(_let_late))],
        found_by=1,
        scenario="several",
    ),
    "txns-overtaken": Mutation(
        "a header is written where it is as its coordinator knows it",
        [(KeptTransactions, "write", _any_version)],
        found_by=21,
        scenario="several",
    ),
    "txns-adopted": Mutation(
        "transactions that a former owner began late are found",
        [(SharedTransactions, "_adopt", _knows_all)],
        found_by=13,
        scenario="several",
    ),
}
