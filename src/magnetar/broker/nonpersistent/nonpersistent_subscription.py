"""A subscription of a non-persistent topic: its consumers get what arrives while they ask for messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import ConsumerBusyError, NotAllowedError, of_another_mode
from magnetar.broker.explain.live_views import consumer_views
from magnetar.broker.explain.subscription_view import View
from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.judge import FilterCounts, Judge
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.nonpersistent.choosers import ActiveChooser, Chooser, KeyChooser, SharedChooser
from magnetar.broker.nonpersistent.screening import Screening
from magnetar.broker.subscription.any_subscription import (
    AnySubscription,
    AttachedConsumer,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.topic.entry import entry_hash
from magnetar.wire.events import AckEvent

_log: Final = logging.getLogger("magnetar.broker.nonpersistent")


class NonPersistentSubscription(AnySubscription):
    """Consumers of one non-persistent topic that share its messages. No cursor, no backlog."""

    def __init__(
        self,
        topic: TopicName,
        name: str,
        *,
        durable: bool,
        properties: Mapping[str, str] | None = None,
        clock: Clock,
        spawn: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """A subscription that is not `durable`, a reader's, is deleted with its last consumer."""
        super().__init__(topic, name, clock.now_ms())
        self._durable = durable
        self._properties = dict(properties or {})
        self._type, self._policy = SubscriptionType.EXCLUSIVE, KeySharedPolicy()
        self._chooser: Chooser | None = None
        self._clock = clock
        self._spawn = spawn
        self._screening: Screening | None = None
        """Set while entry filters are in force."""
        self.messages_dropped = 0
        """Messages that no consumer could take."""

    @property
    def type(self) -> SubscriptionType:
        return self._type

    @property
    def durable(self) -> bool:
        return self._durable

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    @property
    def consumers(self) -> list[AttachedConsumer]:
        found = () if self._chooser is None else self._chooser.consumers
        return [consumer for consumer in found if isinstance(consumer, AttachedConsumer)]

    @property
    def active_consumer(self) -> str | None:
        chooser = self._chooser
        if isinstance(chooser, ActiveChooser) and chooser.active is not None:
            return chooser.active.name
        return None

    @property
    def backlog_entries(self) -> int:
        return 0

    @property
    def mark_delete(self) -> None:
        return None

    def view(self) -> View:
        single = isinstance(self._chooser, ActiveChooser)
        views = consumer_views(self.consumers, self.unacked_of)
        return View(stored=False, consumers=views, single=single, active=self.active_consumer)

    # -- consumers ---------------------------------------------------------------------------------

    def attach(self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy) -> None:
        chooser = self._chooser
        if chooser is None or not chooser.consumers:
            chooser = self._new_chooser(type_, policy)
        elif type_ is not self.type:
            raise ConsumerBusyError(
                f"Subscription is of different type. Active subscription type of '{self.type.name.title()}'"
                f" is different than the connecting consumer's type '{type_.name.title()}'."
            )
        elif type_ is SubscriptionType.KEY_SHARED and policy != self._policy:
            raise of_another_mode(self._policy.sticky, policy.sticky)
        # Before `add`, which tells a Failover consumer whether it is the active one.
        self._type, self._policy = type_, policy
        chooser.add(consumer)
        self._chooser = chooser

    def _new_chooser(self, type_: SubscriptionType, policy: KeySharedPolicy) -> Chooser:
        if type_ is SubscriptionType.SHARED:
            return SharedChooser()
        if type_ is SubscriptionType.KEY_SHARED:
            return KeyChooser(sticky=policy.sticky, hash_of=entry_hash)
        return ActiveChooser(
            failover=type_ is SubscriptionType.FAILOVER,
            partition=self.topic.partition,
            active_changed=self._tell_active,
        )

    def detach(self, consumer: AttachedConsumer) -> None:
        if self._chooser is not None:
            self._chooser.remove(consumer)

    def detach_all(self) -> None:
        consumers, self._chooser = self.consumers, None
        for consumer in consumers:
            consumer.connection.consumer_detached(consumer)

    def keep(self, limits: SubscriptionLimits) -> None:
        """Applies only the filters of the limits: nothing here waits to be acknowledged or sent later."""
        rules, before = limits.filters, self._screening
        if before is not None and before.judge.rules == rules:
            return
        if before is not None:
            before.end()
        self._screening = None
        if rules.names:
            self.filtered = self.filtered or FilterCounts()
            judge = Judge(rules, str(self.topic), self.name, lambda: self._properties, self._clock)
            self._screening = Screening(
                judge, self.topic.tenant, self._spawn, decided=self._decided, failed=self._not_decided
            )

    # -- messages ----------------------------------------------------------------------------------

    def deliver(self, entries: list[bytes], counts: list[int] | None) -> None:
        """Sends a vector to its consumers; `counts` are messages per entry, None: one each."""
        if self._screening is not None:
            self._screening.take(entries, [1] * len(entries) if counts is None else counts)
        else:
            self._send(entries, counts)

    def _send(self, entries: list[bytes], counts: list[int] | None) -> None:
        messages = len(entries) if counts is None else sum(counts)
        if self._chooser is not None and entries:
            now_ms = self._clock.now_ms()
            for share in self._chooser.divide(entries, counts):
                consumer = share.consumer
                assert isinstance(consumer, AttachedConsumer)
                size = consumer.encoder.encode_unstored(share.entries, consumer.connection.out)
                consumer.connection.queued(size)
                self.tally.sent(consumer, len(share.entries), share.messages, size, now_ms)
                messages -= share.messages
        self.messages_dropped += messages

    def _decided(self, entries: Sequence[bytes], counts: Sequence[int], verdicts: Sequence[Verdict]) -> None:
        """Sends the entries that the filters accept. What they put off is dropped like all that cannot be
        delivered: nothing is stored here."""
        filtered = self.filtered
        assert filtered is not None
        rows = []
        for row, (verdict, messages) in enumerate(zip(verdicts, counts, strict=True)):
            filtered.add(verdict, messages)
            if verdict is Verdict.ACCEPT:
                rows.append(row)
            elif verdict is Verdict.RESCHEDULE:
                self.messages_dropped += messages
        if rows:
            self._send([entries[row] for row in rows], [counts[row] for row in rows])

    def _not_decided(self, error: FilterError | None, messages: int) -> None:
        """Messages that the filters cannot judge, or have no time for, are dropped."""
        if error is not None:
            _log.error("%s, subscription %s: %s; messages are dropped", self.topic, self.name, error)
        self.messages_dropped += messages

    # -- commands ----------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        consumer.permits += permits
        self.tally.flow(consumer, self._clock.now_ms())

    def ack(self, consumer: AttachedConsumer, event: AckEvent) -> None:
        """There is nothing to acknowledge; a client that wants an answer gets it."""
        if event.cumulative and self.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise NotAllowedError(
                f"cumulative acknowledgement is not allowed on {self.type.name} subscriptions"
            )
        self.tally.acknowledged(consumer, len(event.positions), self._clock.now_ms())
        if event.request_id is not None:
            consumer.connection.ack_response(consumer, event.request_id, None)

    def redeliver(
        self, consumer: AttachedConsumer, positions: list[Position] | None, epoch: int | None
    ) -> None:
        """Sent messages cannot be redelivered."""

    async def seek_message(self, position: Position) -> None:
        """Only future messages can be delivered, whatever position the client names."""

    async def seek_time(self, publish_ms: int) -> None:
        """As `seek_message`."""

    def pump(self) -> None:
        """Nothing waits."""
