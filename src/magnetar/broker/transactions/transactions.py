"""The transactions of a broker: its coordinators, their timers, and what topics and subscriptions are told.

Driver of what decides (`coordinator.py`), remembers (`kept_log.py`) and follows (`topic_transactions.py`).

Order of writes, each durable before the next step:
1. a topic stands in the header, then it takes messages of the transaction;
2. acknowledgements stand in the header, then they are answered;
3. messages and acknowledgements of the transaction are durable, then its header is decided;
4. the header is decided, then messages appear, acknowledgements count, and END_TXN is answered;
5. hidden entries and cursors are durable, then the header becomes an outcome.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    CoordinatorNotFoundError,
    NotAllowedError,
    RefusedError,
    ServiceNotReadyError,
    TopicNotFoundError,
    TransactionStateError,
)
from magnetar.broker.transactions.acked_on import acknowledged_on
from magnetar.broker.transactions.acks import TxnAcks
from magnetar.broker.transactions.batch_sizes import measure_batches
from magnetar.broker.transactions.coordinator import ANYBODY, RESERVED, Coordinator, Who
from magnetar.broker.transactions.deadlines import Deadlines
from magnetar.broker.transactions.discovery import Discovery
from magnetar.broker.transactions.ids import TxnId, TxnState, txn_id
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.kept_log import LoggedTransactions
from magnetar.broker.transactions.recovery import left_by
from magnetar.broker.transactions.resolving import AGAIN_MS, Resolving
from magnetar.broker.transactions.subscription_acks import acks_of, check_unmoved
from magnetar.broker.transactions.transaction import Transaction, text_bytes
from magnetar.broker.transactions.txn_rules import TXN_RULES, TxnRules
from magnetar.runtime.flights import OneAtATime
from magnetar.runtime.tasks import SingleFlight
from magnetar.wire.events import AckEvent, SendRun, TxnBits

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.topic.producer import Producer
    from magnetar.broker.topic.topic import Topic

_log = logging.getLogger("magnetar.broker.transactions")


class Transactions:
    """The transactions of one broker. `kept`: their records, by default those in its store."""

    def __init__(
        self, broker: BrokerPort, rules: TxnRules = TXN_RULES, kept: KeptTransactions | None = None
    ) -> None:
        self.enabled = broker.config.transactions
        self.discovery = Discovery(broker.policies)
        self._broker = broker
        self._rules = rules
        self._kept, self._resolving = self._made(kept or LoggedTransactions(broker.store, broker.tasks.spawn))
        self.coordinators = self._resolving.coordinators
        """Coordinators that have begun a transaction."""
        self.recover = self._resolving.recover
        self.take_up = self._resolving.take_up
        self.topics = broker.topics
        """Loaded topics, by full name."""
        self._saves = OneAtATime()
        self._ends = OneAtATime()
        self._reserves: SingleFlight[None] = SingleFlight()
        self._deadlines = Deadlines(broker.alarms, broker.clock, self.coordinators, self._time_over)

    def _made(self, kept: KeptTransactions) -> tuple[KeptTransactions, Resolving]:
        return kept, Resolving(self._broker, kept, self.abort_of, self._rules)

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recovers the state of earlier processes, even when transactions are off now: hidden entries stay
        hidden. Raises MetadataError."""
        clock, config = self._broker.clock, self._broker.config
        open_max, self._resolving.any_hidden = config.transactions_open_max, await self._kept.any_hidden()
        for number in await self._kept.coordinators():
            self.coordinators[number] = await left_by(self._kept, number, open_max=open_max, clock=clock)
        for coordinator in self.coordinators.values():
            for txn in coordinator.transactions.values():
                self._resolving.concerns(txn, txn.topics)
                if txn.state is not TxnState.OPEN:
                    self._resolving.follow(txn)
        self._deadlines.set()
        if self.coordinators:
            count = sum(len(each.transactions) for each in self.coordinators.values())
            _log.info("%d transactions were taken over", count)

    # -- coordinators ------------------------------------------------------------------------------

    async def connect(self, number: int) -> None:
        """A client will talk to this coordinator. Raises CoordinatorNotFoundError, NotAllowedError."""
        self._check_enabled()
        if number >= await self.discovery.count():
            raise CoordinatorNotFoundError(f"there is no transaction coordinator {number}")
        self._coordinator(number)

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise NotAllowedError("Transactions are not enabled", remedy="set transactionCoordinatorEnabled")

    def _coordinator(self, number: int) -> Coordinator:
        coordinator = self.coordinators.get(number)
        if coordinator is None:
            self._check_enabled()
            if number >= self.discovery.known:
                raise CoordinatorNotFoundError(f"there is no transaction coordinator {number}")
            open_max = self._broker.config.transactions_open_max
            coordinator = self.coordinators[number] = Coordinator(number, open_max=open_max)
        return coordinator

    async def begin(self, number: int, owner: str, ttl_ms: int) -> TxnId:
        """A new transaction, durable on return.

        Raises CoordinatorNotFoundError, TooManyTransactionsError, NotAllowedError, MetadataError.
        """
        self._check_enabled()
        coordinator = self._coordinator(number)
        while coordinator.must_reserve:
            await self._reserves.run(number, lambda: self._reserve(coordinator))
        clock = self._broker.clock
        txn = coordinator.begin(owner, ttl_ms, started_ms=clock.now_ms(), now_ms=clock.monotonic_ms())
        try:
            await self._save(txn)
        except MetadataError:
            # It may be stored all the same, and no client knows of it: it is aborted once the store answers.
            coordinator.begin_end(txn.id, TxnState.ABORTED, ANYBODY, reason="its beginning was not stored")
            self._end_again(coordinator, txn)
            raise
        self._deadlines.set_for(coordinator)
        return txn.id

    async def _reserve(self, coordinator: Coordinator) -> None:
        number = coordinator.number
        known, version = await self._kept.reserved(number)
        start = max(known, coordinator.next_sequence)
        await self._kept.reserve(number, start + RESERVED, version)
        coordinator.next_sequence, coordinator.reserved = start, start + RESERVED

    # -- what a transaction concerns -----------------------------------------------------------------

    async def add_partitions(self, bits: TxnBits, names: Sequence[tuple[str, TopicName]], who: Who) -> None:
        """Topics, as named and parsed, may get messages of the transaction; durable on return.

        Raises TransactionNotFoundError, TransactionStateError, CoordinatorNotFoundError, MetadataError.
        """
        coordinator = self._coordinator(bits[0])
        txn = coordinator.find_open(txn_id(bits), who)
        for _, name in names:  # Loaded, so that its end is known: earlier entries are not searched.
            with contextlib.suppress(TopicNotFoundError):
                await self._broker.topic(name, create=False)
        txn = coordinator.find_open(txn_id(bits), who)
        end_of = self._resolving.end_of
        coordinator.add_partitions(txn, [(str(name), named, end_of(name)) for named, name in names])
        self._resolving.concerns(txn, [str(name) for _, name in names])
        await self._save(txn)

    async def add_subscriptions(
        self, bits: TxnBits, subscriptions: Sequence[tuple[str, TopicName, str]], who: Who
    ) -> None:
        """The same for acknowledgements in subscriptions, by their topics as named and parsed."""
        txn = self._coordinator(bits[0]).find_open(txn_id(bits), who)
        for named, topic, subscription in subscriptions:
            known = txn.acks.get(str(topic), {})
            if subscription not in known:
                txn.grow(text_bytes(str(topic)) + 2 * text_bytes(named) + text_bytes(subscription) + 100)
                txn.acks.setdefault(str(topic), known)[subscription] = TxnAcks()
                self._resolving.concerns(txn, (str(topic),))
                if named != str(topic):
                    txn.names[str(topic)] = named
                txn.changed()
        await self._save(txn)

    # -- publishing and acknowledging ----------------------------------------------------------------

    def hold(self, topic: Topic, producer: Producer, run: SendRun, who: Who) -> bool:
        """Whether the SENDs wait until it is known if the topic takes them; then `admit` is not asked."""
        return False

    def admit(self, topic: Topic, producer: str, run: SendRun, who: Who) -> RefusedError | None:
        """Prepares SENDs of a transaction for the topic; why they are refused, None: they are not."""
        assert run.txn is not None
        name = str(topic.name)
        try:
            txn = self._coordinator(run.txn[0]).find_open(txn_id(run.txn), who)
        except RefusedError as error:
            # Clients close their whole connection on any other code.
            return NotAllowedError(str(error))
        if name not in txn.registered:
            return NotAllowedError(f"{name} was not added to transaction {txn.id}")
        part = self._resolving.part_of(topic)
        if topic.dedup is not None and part.note_use(txn.id, producer, run, topic.last_sequence(producer)):
            return NotAllowedError(f"a number of producer {producer} was used before transaction {txn.id}")
        txn.messages += len(run.entries)
        if txn.missing:
            txn.found(name, producer, run.sequence_ids)
        return None

    def missed(self, topic: str, producer: str, run: SendRun, who: Who) -> None:
        """The topic was unloaded and dropped SENDs of a transaction; their client sends them again."""
        assert run.txn is not None
        with contextlib.suppress(RefusedError):  # It has ended, or is another role's: they are refused then.
            txn = self._coordinator(run.txn[0]).find_open(txn_id(run.txn), who)
            txn.missed(topic, producer, run.sequence_ids)

    def acknowledge(
        self,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
    ) -> None:
        """Records acknowledgements in a transaction; answers when they are durable.

        Raises TransactionConflictError, TransactionNotFoundError, TransactionStateError, NotAllowedError.
        """
        assert event.txn is not None
        txn = self._coordinator(event.txn[0]).find_open(txn_id(event.txn), who)
        subscription = acknowledged_on(consumer)
        if subscription.name not in txn.acks.get(str(subscription.topic), ()):
            raise NotAllowedError(f"subscription {subscription.name} was not added to transaction {txn.id}")
        if event.batch_acks:
            begun = subscription.seeks.begun
            self._broker.tasks.spawn(self._acknowledge_parts(txn, consumer, event, who, answer, begun))
        else:
            self._acknowledge(txn, consumer, event)
            self._broker.tasks.spawn(self._answer(txn, answer))

    def _acknowledge(self, txn: Transaction, consumer: AttachedConsumer, event: AckEvent) -> None:
        subscription = acknowledged_on(consumer)
        acks_of(subscription, self.abort_of).acknowledge(txn, consumer, event, self._broker.clock.now_ms())

    async def _acknowledge_parts(
        self,
        txn: Transaction,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
        begun: int,
    ) -> None:
        try:
            topic = await self._broker.topic(consumer.subscription.topic, create=False)
            await measure_batches(topic.log, event)
            # It may have ended while the log was read.
            self._coordinator(txn.id.coordinator).find_open(txn.id, who)
            check_unmoved(topic.subscriptions, consumer.subscription, begun)
            self._acknowledge(txn, consumer, event)
        except MagnetarError as error:
            answer(error)
        else:
            await self._answer(txn, answer)

    async def _answer(self, txn: Transaction, answer: Callable[[BaseException | None], None]) -> None:
        try:
            await self._save(txn)
        except MagnetarError as error:
            answer(error)
            # The client has forgotten its acknowledgements: all or nothing is what remains.
            await self._abort(txn, f"an acknowledgement could not be stored: {error}")
        else:
            answer(None)

    # -- ending ------------------------------------------------------------------------------------

    async def end(self, id_: TxnId, wanted: TxnState, who: Who, *, reason: str = "") -> None:
        """Ends a transaction, durably on return, as a repetition does; where it ends the other way, waits.

        Raises TransactionNotFoundError, TransactionStateError, CoordinatorNotFoundError, MetadataError.
        """
        coordinator = self._coordinator(id_.coordinator)
        while (txn := coordinator.begin_end(id_, wanted, who, reason=reason)) is not None:
            if await self._ends.run(id_, partial(self._end_or_repeat, coordinator, txn)):
                break
        if txn is not None and txn.state is not wanted:
            raise TransactionStateError(f"transaction {id_} is {txn.state.value}: {txn.reason}")

    async def _end_or_repeat(self, coordinator: Coordinator, txn: Transaction) -> None:
        try:
            await self._end(coordinator, txn)
        except MetadataError as error:
            _log.warning("transaction %s cannot be ended: %s", txn.id, error)
            self._end_again(coordinator, txn)
            raise
        except MagnetarError:
            coordinator.take_back_end(txn)
            self._deadlines.set_for(coordinator)
            raise

    async def _end(self, coordinator: Coordinator, txn: Transaction) -> None:
        if txn.ending is TxnState.COMMITTED and not await self._resolving.durable(txn):
            lacks = "was dropped by an unloaded or terminated topic" if txn.missing else "could not be stored"
            txn.ending, txn.reason = TxnState.ABORTED, f"a message of it {lacks}"
        if txn.state is TxnState.OPEN:
            coordinator.decide(txn)
            await self._save(txn)

    def _end_again(self, coordinator: Coordinator, txn: Transaction) -> None:
        """The store did not take the end: it is tried until it does."""

        async def again() -> None:
            with contextlib.suppress(MetadataError, RefusedError):  # It is logged, and tried again.
                await self._ends.run(txn.id, partial(self._end_or_repeat, coordinator, txn))

        key, spawn = ("transaction", txn.id), self._broker.tasks.spawn
        self._broker.alarms.after(key, AGAIN_MS, lambda: spawn(again()))

    async def _abort(self, txn: Transaction, reason: str) -> None:
        """Aborts it unless its end has begun."""
        try:
            await self.end(txn.id, TxnState.ABORTED, ANYBODY, reason=reason)
        except (RefusedError, MetadataError) as error:  # another caller ended it, or its timeout tries again
            _log.info("transaction %s: %s", txn.id, error)

    def _time_over(self, txn: Transaction) -> None:
        self._broker.tasks.spawn(self._abort(txn, f"its time of {txn.ttl_ms} ms was over"))

    async def abort_of(self, topic: str, subscription: str, reason: str) -> None:
        """Aborts open transactions with acknowledgements in this subscription, and returns when all decisions
        are durable there: then a seek or a deletion has the last word."""
        while True:
            concerned = self._resolving.of_topic.get(topic, {}).values()
            found = [txn for txn in concerned if len(txn.acks.get(topic, {}).get(subscription, ()))]
            if not found and not await self._resolving.strike(topic, subscription):
                return
            for txn in found:
                if txn.state is TxnState.OPEN:
                    await self._abort(txn, reason)
            await self._resolving.settled(topic, found)
            if any(txn.state is TxnState.OPEN or topic in txn.unresolved for txn in found):
                raise ServiceNotReadyError(f"transactions of subscription {subscription} are not over yet")

    # -- the header --------------------------------------------------------------------------------

    async def _save(self, txn: Transaction) -> None:
        """Returns when all changes so far are durable. Raises MetadataError, and TransactionStateError when
        it is decided and the change came too late."""
        wanted = txn.revision
        while txn.saved < wanted:
            await self._saves.run(txn.id, partial(self._write, txn))

    async def _write(self, txn: Transaction) -> None:
        if txn.doubtful:
            await self._ask(txn)
            if txn.state is not TxnState.OPEN:
                return
        revision, verdict, registered = txn.revision, txn.verdict, frozenset(txn.partitions)
        try:
            version = await self._kept.save(txn)
        except BaseException:  # Also when it is cancelled: the write may take effect.
            txn.doubtful = True
            raise
        txn.version, txn.saved, txn.registered = version, revision, registered
        if verdict is not None:
            self._decided(txn, verdict)

    async def _ask(self, txn: Transaction) -> None:
        """Reads its stored state, after a write whose outcome is unknown."""
        found = await self._kept.header(txn.id)
        stored = Transaction(txn.id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        if found is not None:
            stored.read(*found)
        txn.version, txn.doubtful = stored.version, False
        if stored.state is not TxnState.OPEN:
            txn.reason = txn.reason or stored.reason
            self._decided(txn, stored.state)

    # -- after the decision --------------------------------------------------------------------------

    def _decided(self, txn: Transaction, state: TxnState) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        self.coordinators[txn.id.coordinator].decided(txn, state, now_ms)
        txn.saved = txn.revision
        self._resolving.follow(txn)

    async def forget_topic(self, log_name: str) -> None:
        """The topic is deleted. Raises MetadataError."""
        if self._resolving.any_hidden:
            await self._kept.forget_topic(log_name)

    def check(self) -> None:
        """Asserts what must always hold."""
        self._kept.check()
        for coordinator in self.coordinators.values():
            coordinator.check()
        for part in filter(None, [topic.transactions for topic in self.topics.values()]):
            part.spans.check()
