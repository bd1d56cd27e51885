"""A coordinator waits until the parts of a transaction are as they are to be."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.errors import NamespaceNotFoundError, RefusedError, TransactionStateError
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept_parts import KeptParts, part_at
from magnetar.broker.transactions.mirror import TopicPart
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TXN_RULES, TxnRules
from magnetar.metadata import keys
from magnetar.metadata.store import BadVersionError, Change, Notification

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.transactions")

_KNOCK_S: Final = 0.3
"""Seconds of silence after which a topic's broker is asked again, and one is found if there is none."""


class _News:
    """What became known of the parts of one transaction since its waiter looked."""

    __slots__ = ("event", "topics")

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = set(topics)
        self.event = asyncio.Event()


class PartWaits:
    """The waits of one broker's coordinators."""

    def __init__(
        self,
        broker: BrokerPort,
        kept: KeptParts,
        knocked: Callable[[str, TxnId], None],
        rules: TxnRules = TXN_RULES,
    ) -> None:
        """`knocked`: a topic of this broker, which is to do its part."""
        self._rules = rules
        self._broker = broker
        self._kept = kept
        self._knocked = knocked
        self._news: dict[TxnId, _News] = {}

    def begin(self) -> None:
        """Listens to the store."""
        self._broker.store.watch(keys.TRANSACTION_PARTS, self._changed)

    def wake(self, id_: TxnId) -> None:
        """The waiter of this transaction is to look whether it still should wait."""
        if (news := self._news.get(id_)) is not None:
            news.event.set()

    def _changed(self, notification: Notification) -> None:
        if notification.change is Change.CHILDREN_CHANGED:
            return
        found = part_at(notification.path)
        if found is not None and (news := self._news.get(found[1])) is not None:
            news.topics.add(str(TopicName.from_log_name(found[0])))
            news.event.set()

    async def closed(self, txn: Transaction, check: Callable[[Transaction], None], until_ms: float) -> bool:
        """Returns when every topic has said that it takes nothing more; whether all that they took is
        durable. Raises what `wait` does."""
        durable = True

        def look(part: TopicPart | None) -> bool:
            nonlocal durable
            if part is None:
                return True  # its topic was deleted with all that it held
            durable = durable and part.durable is not False
            return part.durable is not None

        if self._rules.closes_topics_first():
            await self.wait(txn, look, check, until_ms)
        return durable

    async def gone(self, txn: Transaction, check: Callable[[Transaction], None]) -> None:
        """Returns when every topic has done what was decided, and its part is gone. Raises what `wait`
        does."""
        if self._rules.header_stays():
            await self.wait(txn, lambda part: part is None, check)

    async def wait(
        self,
        txn: Transaction,
        look: Callable[[TopicPart | None], bool],
        check: Callable[[Transaction], None],
        until_ms: float = math.inf,
    ) -> None:
        """Returns when `look` has found each topic's part, None where it is gone, as it is to be. Brokers of
        topics that say nothing are asked again, and topics without a broker get one.

        Raises MetadataError, TransactionStateError after `until_ms` of the clock that only runs, and what
        `check` raises when nothing is to be waited for any more.
        """
        left = set(txn.topics)
        news = self._news[txn.id] = _News(left)
        try:
            while left:
                news.event.clear()
                names, news.topics = sorted(news.topics & left), set()
                for name in names:
                    value = await self._kept.part(TopicName.parse(name).log_name, txn.id)
                    if look(None if value is None else TopicPart.read(value.data, value.stat.path)):
                        left.discard(name)
                check(txn)
                if left and self._broker.clock.monotonic_ms() > until_ms:
                    raise TransactionStateError(
                        f"transaction {txn.id} waits for {min(left)}; its time is over"
                    )
                if left and not news.topics:
                    try:
                        async with asyncio.timeout(_KNOCK_S):
                            await news.event.wait()
                    except TimeoutError:
                        # No topic said anything.
                        await self._knock(txn.id, left)
                        news.topics |= left
        finally:
            if self._news.get(txn.id) is news:
                del self._news[txn.id]

    async def wake_coordinators(self, count: int) -> None:
        """A coordinator without a broker gets one while it has transactions: their time ends them."""
        owners = self._broker.owners
        assert owners is not None, "there are several brokers"
        for name in map(ASSIGN.with_partition, range(count)):
            try:
                if not owners.has(name) and await self._kept.begun(name.partition):
                    await owners.locate(name, authoritative=True)
            except MagnetarError as error:  # it is tried again
                _log.info("%s: %s", name, error)

    async def _knock(self, id_: TxnId, names: Collection[str]) -> None:
        owners = self._broker.owners
        assert owners is not None, "there are several brokers"
        for name in sorted(names):
            topic = TopicName.parse(name)
            try:
                place = await owners.locate(topic, authoritative=True)
                if place.urls is None:
                    self._knocked(name, id_)
                    continue
                # Its owner hears of the write, and so of a transaction that it may not know yet.
                value = await self._kept.part(topic.log_name, id_)
                if value is not None:
                    await self._kept.write_part(topic.log_name, id_, value.data, value.stat.version)
            except NamespaceNotFoundError:
                # Nor is there such a topic.
                value = await self._kept.part(topic.log_name, id_)
                if value is not None:
                    await self._kept.drop_part(topic.log_name, id_, value.stat.version)
            except (RefusedError, BadVersionError) as error:
                # It has no broker yet, or that one has just written: it is knocked at again.
                _log.debug("%s in transaction %s: %s", name, id_, error)
