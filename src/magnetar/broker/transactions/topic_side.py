"""SEND and ACK of transactions of several brokers: whether a topic here takes them.

A topic asks once: when it hears of a transaction for the first time, its part is claimed and the header is
read. Until then what the producer sends waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.broker.errors import (
    NotAllowedError,
    RefusedError,
    ServiceNotReadyError,
    TransactionNotFoundError,
    TransactionStateError,
)
from magnetar.broker.transactions.acked_on import acknowledged_on
from magnetar.broker.transactions.batch_sizes import measure_batches
from magnetar.broker.transactions.coordinator import Who
from magnetar.broker.transactions.held_sends import HeldSends
from magnetar.broker.transactions.ids import TxnId, TxnState, txn_id
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import Mirror
from magnetar.broker.transactions.participants import Participants
from magnetar.broker.transactions.subscription_acks import AbortOf, acks_of, check_unmoved
from magnetar.broker.transactions.txn_rules import TxnRules
from magnetar.runtime.tasks import pause

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.producer import Producer
    from magnetar.broker.topic.topic import Topic
    from magnetar.wire.events import AckEvent, SendRun

_ABORTED_MS: Final = 20_000.0
"""Longest wait of a seek for the end of transactions that acknowledge there."""
_LEARN_MS: Final = 20_000.0
"""Longest wait of SENDs for a store that is away; most clients wait for 30 s."""
_LOOK_S: Final = 0.05


class TopicSide:
    """The commands of transactions at the topics of one broker."""

    def __init__(
        self,
        broker: BrokerPort,
        kept: KeptParts,
        participants: Participants,
        abort_of: AbortOf,
        rules: TxnRules,
    ) -> None:
        self._rules = rules
        self._broker = broker
        self._kept = kept
        self._participants = participants
        self._abort_of = abort_of

    # -- publishing --------------------------------------------------------------------------------

    def hold(self, topic: Topic, producer: Producer, run: SendRun, who: Who) -> bool:
        """Whether the SENDs wait, and are answered later: it is not known whether their transaction is the
        topic's, or others of the producer wait."""
        assert run.txn is not None
        publishing = topic.publishing
        if publishing.held is not None and publishing.held.keep(producer, run):
            return True
        if self._knows(topic, txn_id(run.txn)):
            return False
        self._hold(topic, producer, [(run, who)])
        self._broker.tasks.spawn(self._let_through(topic, producer))
        return True

    def _knows(self, topic: Topic, id_: TxnId) -> bool:
        mirror = self._participants.mirror(str(topic.name), id_)
        return mirror is not None and mirror.topic in mirror.registered

    def _hold(self, topic: Topic, producer: Producer, runs: list[tuple[SendRun, Who]]) -> None:
        held = topic.publishing.held
        if held is None:
            held = topic.publishing.held = HeldSends()
        assert isinstance(held, HeldSends)
        held.hold(producer, runs)
        self._participants.part_of(topic).held = held

    async def _let_through(self, topic: Topic, producer: Producer) -> None:
        """Publishes what a producer sent once it is known which transactions are the topic's."""
        held = topic.publishing.held
        assert isinstance(held, HeldSends)
        while (first := held.first(producer)) is not None:
            assert first.txn is not None, "plain messages only wait behind others"
            id_ = txn_id(first.txn)
            refusal = await self._learned(topic, id_)
            runs = held.take(producer)
            for at, (run, who) in enumerate(runs):
                if not producer.ready:  # it was closed, and what it sent is dropped
                    producer.connection.published(run.size_bytes)
                    continue
                if run.txn is None or topic.closed:
                    topic.publish(producer, run)
                    continue
                known = self._knows(topic, txn_id(run.txn))
                if not known and txn_id(run.txn) != id_:
                    held.hold(producer, runs[at:])
                    break
                why = self.admit(topic, producer.name, run, who, held=True) if known else refusal
                if why is None:
                    topic.publish(producer, run)
                else:
                    topic.refuse(producer, run, why)
            self._participants.part_of(topic).let_through()

    async def _learned(self, topic: Topic, id_: TxnId) -> RefusedError:
        """Returns once it is known, or is not to be; why it is refused if it is not known."""
        until_ms = self._broker.clock.monotonic_ms() + _LEARN_MS
        while True:
            try:
                await self._learn(topic, id_, lambda: self._knows(topic, id_))
            except MetadataError as error:
                if not topic.closed and self._broker.clock.monotonic_ms() < until_ms:
                    await pause(_LOOK_S)
                    continue
                return NotAllowedError(f"transaction {id_} could not be looked up: {error}")
            except MagnetarError as error:
                # Clients close their whole connection on any other code.
                return NotAllowedError(str(error))
            return NotAllowedError(f"{topic.name} was not added to transaction {id_}")

    async def _learn(self, topic: Topic, id_: TxnId, is_known: Callable[[], bool]) -> None:
        """Raises what `Participants.learn` does. A server of the store may be behind the one that the
        coordinator wrote to: what the store does not say is asked for once more."""
        try:
            await self._participants.learn(topic, id_)
        except (NotAllowedError, TransactionNotFoundError):
            await self._kept.sync()
            await self._participants.learn(topic, id_)
        if not is_known():
            await self._kept.sync()
            await self._participants.learn(topic, id_)

    def admit(
        self, topic: Topic, producer: str, run: SendRun, who: Who, *, held: bool = False
    ) -> RefusedError | None:
        """See `Transactions.admit`. `held`: it came before the topic knew the transaction: it is taken unless
        the topic has said that it takes nothing more."""
        if run.txn is None:
            return None
        mirror = self._participants.mirror(str(topic.name), txn_id(run.txn))
        if mirror is None:
            return NotAllowedError(f"{topic.name} was not added to transaction {txn_id(run.txn)}")
        try:
            self._check_open(mirror, who, held=held)
        except RefusedError as error:
            return NotAllowedError(str(error))
        part = self._participants.part_of(topic)
        if topic.dedup is not None and part.note_use(mirror.id, producer, run, topic.last_sequence(producer)):
            return NotAllowedError(f"a number of producer {producer} was used before transaction {mirror.id}")
        mirror.messages += len(run.entries)
        return None

    def _check_open(self, mirror: Mirror, who: Who, *, held: bool = False) -> None:
        if not who.may(mirror):
            raise TransactionNotFoundError(f"transaction {mirror.id} is not known to {who.role or 'you'}")
        closed = mirror.closed or (mirror.closing and not held) or bool(mirror.reason)
        if not self._rules.takes(closed=closed):
            raise TransactionStateError(f"transaction {mirror.id} ends or has ended, and takes nothing more")

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
    ) -> None:
        """See `Transactions.acknowledge`."""
        subscription = acknowledged_on(consumer)
        begun = subscription.seeks.begun
        self._broker.tasks.spawn(self._acknowledge_later(subscription, consumer, event, who, answer, begun))

    async def _acknowledge_later(
        self,
        subscription: Subscription,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
        begun: int,
    ) -> None:
        assert event.txn is not None
        try:
            topic = await self._broker.topic(subscription.topic, create=False)
            id_ = txn_id(event.txn)
            if self._acked_in(topic, subscription, id_) is None:
                await self._learn(topic, id_, lambda: self._acked_in(topic, subscription, id_) is not None)
            if event.batch_acks:
                await measure_batches(topic.log, event)
            # It may have ended while the log was read.
            mirror = self._acked_in(topic, subscription, id_)
            if mirror is None:
                raise NotAllowedError(f"subscription {subscription.name} was not added to transaction {id_}")
            self._check_open(mirror, who)
            check_unmoved(topic.subscriptions, subscription, begun)
            now_ms = self._broker.clock.now_ms()
            acks_of(subscription, self._abort_of).acknowledge(mirror, consumer, event, now_ms)
        except MagnetarError as error:
            # The client is told.
            answer(error)
            return
        try:
            await self._participants.save(mirror)
        except MagnetarError as error:
            # The client has forgotten its acknowledgements: all or nothing is what remains.
            self._participants.lose(mirror.topic, (mirror.id,))
            answer(error)
        else:
            answer(None)

    def _acked_in(self, topic: Topic, subscription: Subscription, id_: TxnId) -> Mirror | None:
        """The topic's part, if the subscription was added to the transaction."""
        mirror = self._participants.mirror(str(topic.name), id_)
        named = () if mirror is None else mirror.acks.get(mirror.topic, ())
        return mirror if subscription.name in named else None

    async def abort_of(self, topic: str, subscription: str, reason: str) -> None:
        """See `Transactions.abort_of`: what is open is aborted by its coordinator, which is told so."""
        until_ms = self._broker.clock.monotonic_ms() + _ABORTED_MS
        wished: set[TxnId] = set()
        while True:
            concerned = list(self._participants.of_topic.get(topic, {}).values())
            found = [txn for txn in concerned if len(txn.acks.get(topic, {}).get(subscription, ()))]
            if not found:
                return
            for txn in found:
                if txn.state is TxnState.OPEN and txn.id not in wished:
                    wished.add(txn.id)
                    await self._kept.wish(txn.id, reason)
            if self._broker.clock.monotonic_ms() > until_ms:
                raise ServiceNotReadyError(f"transactions of subscription {subscription} are not over yet")
            await pause(_LOOK_S)
