"""Headers of transactions of several brokers, written with the parts of the topics that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.transaction import Transaction
from magnetar.metadata.store import OPERATIONS_MAX, BadVersionError

PARTS_MAX: Final = OPERATIONS_MAX - 1
"""Parts that are made with one write of a header. A transaction of more topics takes several."""


class SharedHeaders:
    """The headers of one broker's coordinators.

    A topic's part is there before a durable header without a decision names it, and no part is there that no
    header names: both are written together.
    """

    def __init__(
        self,
        kept: KeptParts,
        check: Callable[[Transaction], None],
        decided: Callable[[Transaction, TxnState], None],
        give_up: Callable[[int], None],
    ) -> None:
        """`check` raises CoordinatorNotFoundError when the transaction is another broker's; `decided` is told
        of durable decisions, `give_up` of coordinators whose transactions another process has written."""
        self._kept = kept
        self._check = check
        self._decided = decided
        self._give_up = give_up
        self._attempts: dict[TxnId, tuple[bytes, int, TxnState | None, frozenset[str]]] = {}
        """Of transactions whose last write may have taken effect: header, revision, decision, topics."""
        self._parted: dict[TxnId, frozenset[str]] = {}
        """Topics that have had a part, durably."""

    def taken_over(self, txn: Transaction) -> None:
        """It was read: the topics that it names have parts, or had them."""
        self._parted[txn.id] = frozenset(txn.topics)

    def forget(self, id_: TxnId) -> None:
        """It is over, or another broker's."""
        self._parted.pop(id_, None)
        self._attempts.pop(id_, None)

    async def write(self, txn: Transaction) -> None:
        """As the transaction is now. Raises CoordinatorNotFoundError, MetadataError."""
        self._check(txn)
        if txn.doubtful and await self._found_written(txn):
            return
        parted = self._parted.get(txn.id, frozenset())
        new = sorted(txn.topics - parted)[:PARTS_MAX]
        named = parted.union(new)
        revision, verdict = txn.revision, txn.verdict
        header = txn.header(parts=True)
        if not named >= txn.topics:
            # More topics than one write of the store takes: the header names those that get a part with it.
            revision, verdict, header = txn.saved, None, _naming(txn, named)
        self._attempts[txn.id] = header, revision, verdict, named
        try:
            if new:
                logs = [TopicName.parse(name).log_name for name in new]
                version = await self._kept.write_with_parts(txn, header, logs)
            else:
                version = await self._kept.write(txn, header)
        except BadVersionError:
            # Another process wrote: what is known here is of the past.
            self._give_up(txn.id.coordinator)
            self._check(txn)
            raise
        except BaseException:  # also when it is cancelled: the write may take effect
            txn.doubtful = True
            raise
        self._written(txn, version)

    def _written(self, txn: Transaction, version: int) -> None:
        self._check(txn)
        _, revision, verdict, named = self._attempts.pop(txn.id)
        txn.version, txn.saved, txn.doubtful = version, max(txn.saved, revision), False
        self._parted[txn.id] = named
        txn.registered = frozenset(txn.partitions.keys() & named)
        if verdict is not None:
            self._decided(txn, verdict)

    async def _found_written(self, txn: Transaction) -> bool:
        """Whether the last write, whose outcome was not known, took effect. Raises CoordinatorNotFoundError
        when another process wrote."""
        found = await self._kept.header(txn.id)
        self._check(txn)
        attempt = self._attempts.get(txn.id)
        if attempt is not None and found is not None and found[0] == attempt[0] and found[1] != txn.version:
            self._written(txn, found[1])
            return True
        if (None if found is None else found[1]) != txn.version:
            self._give_up(txn.id.coordinator)
            self._check(txn)
        txn.doubtful = False
        return False


def _naming(txn: Transaction, topics: frozenset[str]) -> bytes:
    """The open header with these topics only."""
    partitions, acks, verdict, closing = txn.partitions, txn.acks, txn.verdict, txn.closing
    try:
        txn.partitions = {name: last for name, last in partitions.items() if name in topics}
        txn.acks = {name: each for name, each in acks.items() if name in topics}
        txn.verdict, txn.closing = None, False
        return txn.header(parts=True)
    finally:
        txn.partitions, txn.acks, txn.verdict, txn.closing = partitions, acks, verdict, closing
