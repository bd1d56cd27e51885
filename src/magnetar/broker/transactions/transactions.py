"""The transactions of a broker: its coordinators, their timers, and what topics and subscriptions are told.

Driver: coordinators decide (`coordinator.py`), the metadata store remembers (`kept.py`), topics follow
(`topic_transactions.py`).

Order of writes, each durable before the next step:
1. a topic stands in the header, then it takes messages of the transaction;
2. acknowledgements stand in the header, then they are answered;
3. messages and acknowledgements of the transaction are durable, then its header is decided;
4. the header is decided, then messages appear, acknowledgements count, and END_TXN is answered;
5. hidden entries and cursors are durable, then the header becomes an outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    CoordinatorNotFoundError,
    NotAllowedError,
    RefusedError,
    ServiceNotReadyError,
    TransactionStateError,
)
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.transactions.acks import TxnAcks
from magnetar.broker.transactions.coordinator import RESERVED, Coordinator, Who
from magnetar.broker.transactions.discovery import Discovery
from magnetar.broker.transactions.ids import TxnId, TxnState, txn_id
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.resolving import AGAIN_MS, Resolving
from magnetar.broker.transactions.subscription_acks import acks_of
from magnetar.broker.transactions.transaction import HEADER_BYTES_MAX, Transaction
from magnetar.runtime.tasks import SingleFlight
from magnetar.wire.events import AckEvent, SendRun, TxnBits

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.topic.topic import Topic

_log = logging.getLogger("magnetar.broker.transactions")

ANYBODY: Final = Who("", superuser=True)
"""For what the broker and operators do."""


class Transactions:
    """Of one broker."""

    def __init__(self, broker: BrokerPort) -> None:
        self.enabled = broker.config.transactions
        self.discovery = Discovery(broker.policies)
        self._broker = broker
        self._open_max = broker.config.transactions_open_max
        self._kept = KeptTransactions(broker.store)
        self._versions: dict[int, int] = {}
        """Of the coordinators' values in the store."""
        self._resolving = Resolving(broker, self._kept, self.abort_of)
        self.coordinators = self._resolving.coordinators
        """Those that have begun a transaction."""
        self.topics = broker.topics
        """Loaded topics, by full name."""
        self._saves: SingleFlight[None] = SingleFlight()
        self._ends: SingleFlight[None] = SingleFlight()
        self._reserves: SingleFlight[None] = SingleFlight()
        self._rings_at_ms: float | None = None

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Takes over what earlier processes left. Raises MetadataError, InvalidHeaderError."""
        if not self.enabled:
            return
        began_ms = self._broker.clock.monotonic_ms()
        self._resolving.any_hidden = await self._kept.any_hidden()
        for number in await self._kept.coordinators():
            await self._recover(number)
        for coordinator in self.coordinators.values():
            for txn in coordinator.transactions.values():
                self._resolving.concerns(txn, txn.topics)
                if txn.state is not TxnState.OPEN:
                    self._resolving.follow(txn)
        self._set_alarm()
        if self.coordinators:
            count = sum(len(each.transactions) for each in self.coordinators.values())
            took_ms = self._broker.clock.monotonic_ms() - began_ms
            _log.info("%d transactions were taken over in %.0f ms", count, took_ms)

    async def _recover(self, number: int) -> None:
        clock = self._broker.clock
        coordinator = Coordinator(number, open_max=self._open_max)
        coordinator.reserved, self._versions[number] = await self._kept.reserved(number)
        coordinator.next_sequence = coordinator.reserved
        async for page, data in self._kept.outcomes(number):
            coordinator.outcomes.read(page, data)
        wall_ms, now_ms = clock.now_ms(), clock.monotonic_ms()
        async for sequence, header, version in self._kept.headers(number):
            txn = Transaction(TxnId(number, sequence), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
            txn.read(header, version)
            coordinator.recovered(txn, wall_ms=wall_ms, now_ms=now_ms)
        self.coordinators[number] = coordinator

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
        self._check_enabled()
        coordinator = self.coordinators.get(number)
        if coordinator is None:
            if number >= self.discovery.known:
                raise CoordinatorNotFoundError(f"there is no transaction coordinator {number}")
            coordinator = self.coordinators[number] = Coordinator(number, open_max=self._open_max)
        return coordinator

    async def begin(self, number: int, owner: str, ttl_ms: int) -> TxnId:
        """A new transaction, durable on return.

        Raises CoordinatorNotFoundError, TooManyTransactionsError, NotAllowedError, MetadataError.
        """
        coordinator = self._coordinator(number)
        while coordinator.must_reserve:
            await self._reserves.run(number, lambda: self._reserve(coordinator))
        clock = self._broker.clock
        txn = coordinator.begin(owner, ttl_ms, started_ms=clock.now_ms(), now_ms=clock.monotonic_ms())
        await self._save(txn)
        self._set_alarm()
        return txn.id

    async def _reserve(self, coordinator: Coordinator) -> None:
        number = coordinator.number
        known, version = await self._kept.reserved(number)
        start = max(known, coordinator.next_sequence)
        self._versions[number] = await self._kept.reserve(number, start + RESERVED, version)
        coordinator.next_sequence, coordinator.reserved = start, start + RESERVED

    # -- what a transaction concerns -----------------------------------------------------------------

    async def add_partitions(self, bits: TxnBits, names: Sequence[tuple[str, TopicName]], who: Who) -> None:
        """Topics, as named and parsed, may get messages of the transaction; durable on return.

        Raises TransactionNotFoundError, TransactionStateError, CoordinatorNotFoundError, MetadataError.
        """
        coordinator = self._coordinator(bits[0])
        txn = coordinator.find_open(txn_id(bits), who)
        self._resolving.concerns(txn, [str(name) for _, name in names])
        coordinator.add_partitions(txn, [(str(name), named, self._last_of(name)) for named, name in names])
        await self._save(txn)

    def _last_of(self, name: TopicName) -> Position | None:
        topic = self._resolving.loaded(str(name))
        return None if topic is None else topic.log.last_position

    async def add_subscriptions(
        self, bits: TxnBits, subscriptions: Sequence[tuple[str, TopicName, str]], who: Who
    ) -> None:
        """Subscriptions, by their topics as named and parsed, may get acknowledgements of the transaction.
        Raises what `add_partitions` does."""
        txn = self._coordinator(bits[0]).find_open(txn_id(bits), who)
        self._resolving.concerns(txn, [str(topic) for _, topic, _ in subscriptions])
        for named, topic, subscription in subscriptions:
            known = txn.acks.setdefault(str(topic), {})
            if subscription not in known:
                known[subscription] = TxnAcks()
                if named != str(topic):
                    txn.names[str(topic)] = named
                txn.changed()
        await self._save(txn)

    # -- publishing and acknowledging ----------------------------------------------------------------

    def admit(self, topic: Topic, run: SendRun, who: Who) -> RefusedError | None:
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
        self._resolving.part_of(topic)
        txn.messages += len(run.entries)
        return None

    def acknowledge(
        self,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
    ) -> None:
        """Takes acknowledgements in a transaction; answers when they are durable.

        Raises TransactionConflictError, TransactionNotFoundError, TransactionStateError, NotAllowedError.
        """
        assert event.txn is not None
        txn = self._coordinator(event.txn[0]).find_open(txn_id(event.txn), who)
        subscription = consumer.subscription
        if not isinstance(subscription, Subscription) or not subscription.durable:
            raise NotAllowedError(
                "transactions acknowledge on durable subscriptions of persistent topics only"
            )
        if subscription.name not in txn.acks.get(str(subscription.topic), ()):
            raise NotAllowedError(f"subscription {subscription.name} was not added to transaction {txn.id}")
        acks_of(subscription, self.abort_of).acknowledge(txn, consumer, event, self._broker.clock.now_ms())
        self._broker.tasks.spawn(self._answer(txn, answer))

    async def _answer(self, txn: Transaction, answer: Callable[[BaseException | None], None]) -> None:
        try:
            await self._save(txn)
        except MagnetarError as error:
            answer(error)
            # What is acknowledged is not known any more to the client: all or nothing is what is left.
            await self._abort(txn, f"an acknowledgement could not be stored: {error}")
        else:
            answer(None)

    # -- ending ------------------------------------------------------------------------------------

    async def end(self, id_: TxnId, wanted: TxnState, who: Who, *, reason: str = "") -> None:
        """Ends a transaction, durably on return; says the same when it had ended so before.

        Raises TransactionNotFoundError, TransactionStateError, CoordinatorNotFoundError, MetadataError.
        """
        coordinator = self._coordinator(id_.coordinator)
        txn = coordinator.begin_end(id_, wanted, who, reason=reason)
        if txn is None:
            return
        try:
            await self._ends.run(id_, lambda: self._end(coordinator, txn))
        except MetadataError:
            self._end_again(coordinator, txn)
            raise
        if txn.state is not wanted:
            raise TransactionStateError(f"transaction {id_} is {txn.state.value}: {txn.reason}")

    async def _end(self, coordinator: Coordinator, txn: Transaction) -> None:
        if txn.ending is TxnState.COMMITTED and not await self._settled(txn):
            txn.ending, txn.reason = TxnState.ABORTED, "a message of it could not be stored"
        if txn.state is TxnState.OPEN:
            coordinator.decide(txn)
            await self._save(txn)

    async def _settled(self, txn: Transaction) -> bool:
        """Returns when all messages that topics took of it are durable; False: some never will be."""
        for name in txn.partitions:
            topic = self._resolving.loaded(name)
            part = None if topic is None else topic.transactions
            if part is not None and not await part.settled(txn.id):
                return False
        return True

    def _end_again(self, coordinator: Coordinator, txn: Transaction) -> None:
        """The store did not take the end: it is tried until it does."""

        async def again() -> None:
            try:
                await self._ends.run(txn.id, lambda: self._end(coordinator, txn))
            except MetadataError as error:
                _log.warning("transaction %s cannot be ended: %s", txn.id, error)
                self._end_again(coordinator, txn)

        self._broker.alarms.after(
            ("transaction", txn.id), AGAIN_MS, lambda: self._broker.tasks.spawn(again())
        )

    async def _abort(self, txn: Transaction, reason: str) -> None:
        """Aborts it if nobody ends it already."""
        try:
            await self.end(txn.id, TxnState.ABORTED, ANYBODY, reason=reason)
        except (RefusedError, MetadataError) as error:  # somebody ended it, or its timeout asks again
            _log.info("transaction %s: %s", txn.id, error)

    async def abort_of(self, topic: str, subscription: str, reason: str) -> None:
        """Ends what is open and acknowledged in this subscription, and returns when everything decided is
        durable there: then a seek or a deletion has the last word."""
        while True:
            concerned = self._resolving.of_topic.get(topic, {}).values()
            found = [txn for txn in concerned if len(txn.acks.get(topic, {}).get(subscription, ()))]
            if not found:
                return
            for txn in found:
                if txn.state is TxnState.OPEN:
                    await self._abort(txn, reason)
            await self._resolving.settled(topic, found)
            if any(txn.state is TxnState.OPEN or topic in txn.unresolved for txn in found):
                raise ServiceNotReadyError(f"transactions of subscription {subscription} are not over yet")

    # -- the header --------------------------------------------------------------------------------

    async def _save(self, txn: Transaction) -> None:
        """Returns when everything that was changed so far is durable. Raises MetadataError, and
        TransactionStateError when it is decided and the change came too late."""
        wanted = txn.revision
        while txn.saved < wanted:
            await self._saves.run(txn.id, lambda: self._write(txn))

    async def _write(self, txn: Transaction) -> None:
        if txn.doubtful:
            await self._ask(txn)
            if txn.state is not TxnState.OPEN:
                return
        revision, verdict = txn.revision, txn.verdict
        registered, header = frozenset(txn.partitions), txn.header()
        if len(header) > HEADER_BYTES_MAX:
            raise NotAllowedError(f"transaction {txn.id} concerns too much: {len(header)} bytes")
        try:
            stat = await self._kept.write(txn, header)
        except MetadataError:
            txn.doubtful = True
            raise
        txn.version, txn.saved, txn.registered = stat.version, revision, registered
        if verdict is not None:
            self._decided(txn, verdict)

    async def _ask(self, txn: Transaction) -> None:
        """What the store has of it, after a write whose outcome is not known."""
        found = await self._kept.header(txn.id)
        if found is None:
            txn.version, txn.doubtful = None, False
            return
        stored = Transaction(txn.id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
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

    async def recover(self, topic: Topic) -> None:
        """See `Resolving.recover`."""
        if self.enabled:
            await self._resolving.recover(topic)

    async def forget_topic(self, log_name: str) -> None:
        """The topic is deleted. Raises MetadataError."""
        if self._resolving.any_hidden:
            await self._kept.forget_topic(log_name)

    # -- time --------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """Rings when the next transaction's time is over."""
        nexts = [each.next_deadline_ms for each in self.coordinators.values()]
        next_ms = min((each for each in nexts if each is not None), default=None)
        if next_ms is None or (self._rings_at_ms is not None and self._rings_at_ms <= next_ms):
            return
        self._rings_at_ms = next_ms
        delay_ms = max(0.0, next_ms - self._broker.clock.monotonic_ms())
        self._broker.alarms.after(self, delay_ms, self._ring)

    def _ring(self) -> None:
        self._rings_at_ms = None
        now_ms = self._broker.clock.monotonic_ms()
        for coordinator in self.coordinators.values():
            for txn in coordinator.due(now_ms):
                coordinator.counts.timed_out += 1
                reason = f"its time of {txn.ttl_ms} ms was over"
                self._broker.tasks.spawn(self._abort(txn, reason))
        self._set_alarm()

    def check(self) -> None:
        """Asserts what must always hold."""
        for coordinator in self.coordinators.values():
            coordinator.check()
            for txn in coordinator.transactions.values():
                if txn.state is TxnState.OPEN:
                    assert all(txn.id in self._resolving.of_topic.get(name, ()) for name in txn.topics)
        for topic in self._broker.topics.values():
            if topic.transactions is not None:
                topic.transactions.spans.check()
