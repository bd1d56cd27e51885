"""The consumers of one subscription, and the dispatcher that serves them (pure).

    none ──attach──▶ serving ──the last one leaves──▶ resting
      ▲                │  ▲                             │
      └──detach_all────┘  └──attach: it suits, or not───┘

A dispatcher without consumers rests, as it knows the delayed entries and how often each entry was delivered.
It goes on with the next consumer where it suits its type; else that one gets a new dispatcher, which reads
from mark-delete on. Consumers that are there decide on the type of those that come.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Delays, Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.errors import RefusedError
from magnetar.broker.subscription import dispatchers
from magnetar.broker.subscription.any_subscription import AttachedConsumer, KeySharedPolicy, SubscriptionType
from magnetar.broker.subscription.read_place import ReadPlace
from magnetar.broker.topic.entry import entry_hash

SHARING = frozenset({SubscriptionType.SHARED, SubscriptionType.KEY_SHARED})
"""Types with many active consumers."""


class AttachmentState(Enum):
    """Whether a dispatcher exists, and whether it has consumers."""

    NONE = "none"
    """There is no dispatcher: no consumer was attached yet, or all were detached."""
    RESTING = "resting"
    """The dispatcher has no consumers."""
    SERVING = "serving"
    """The dispatcher has consumers."""


class HeldDelays(Delays, Protocol):
    """Delayed entries, as dispatchers come and go around them."""

    def clear(self) -> None:
        """Forgets what is held back: the next dispatcher reads it again."""

    def pause(self) -> None:
        """Sets no alarm until the next dispatcher asks."""


class Attachments:
    """The consumers of one subscription."""

    __slots__ = ("_delays", "_partition", "_place", "_tell_active", "type")

    def __init__(
        self,
        place: ReadPlace,
        delays: HeldDelays,
        partition: int,
        *,
        tell_active: Callable[[Consumer, bool], None],
    ) -> None:
        """`tell_active` is called when a consumer becomes the active one, or stops to be it."""
        self._place = place
        self._delays = delays
        self._partition = partition
        self._tell_active = tell_active
        self.type = SubscriptionType.EXCLUSIVE
        """The type of the consumers that are attached; without consumers, of those that were last."""

    @property
    def state(self) -> AttachmentState:
        dispatcher = self._place.dispatcher
        if dispatcher is None:
            return AttachmentState.NONE
        return AttachmentState.SERVING if dispatcher.consumers else AttachmentState.RESTING

    @property
    def consumers(self) -> list[AttachedConsumer]:
        """In dispatch order."""
        dispatcher = self._place.dispatcher
        if dispatcher is None:
            return []
        return [consumer for consumer in dispatcher.consumers if isinstance(consumer, AttachedConsumer)]

    @property
    def sole(self) -> Consumer | None:
        """The only consumer that is served; None where all are."""
        dispatcher = self._place.dispatcher
        return dispatcher.active if isinstance(dispatcher, SingleActiveDispatcher) else None

    def attach(
        self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy
    ) -> Dispatcher:
        """Adds a consumer; returns the dispatcher that serves it.

        Raises ConsumerBusyError, ConsumerAssignmentError; the other consumers are served as before then.
        """
        dispatcher = self._suiting(type_, policy)
        dispatchers.check_policy(dispatcher, policy)
        # Before `add`, which tells a Failover consumer whether it is the active one.
        before, self.type = self.type, type_
        try:
            dispatcher.add(consumer)
        except RefusedError:
            # The dispatcher that rests goes on with consumers of its type only.
            self.type = before
            raise
        self._place.dispatcher = dispatcher
        assert consumer in dispatcher.consumers, "it was attached and is not served"
        return dispatcher

    def _suiting(self, type_: SubscriptionType, policy: KeySharedPolicy) -> Dispatcher:
        """The dispatcher for one more consumer. Raises ConsumerBusyError."""
        dispatcher = self._place.dispatcher
        if dispatcher is None or not (dispatcher.consumers or dispatchers.goes_on(dispatcher, type_, policy)):
            return self._new_dispatcher(type_, policy)
        dispatchers.check_type(self.type, type_)
        return dispatcher

    def _new_dispatcher(self, type_: SubscriptionType, policy: KeySharedPolicy) -> Dispatcher:
        assert self.state is not AttachmentState.SERVING, "consumers would be forgotten"
        place, start = self._place, self._place.start
        if type_ in SHARING:
            hash_of = None if type_ is SubscriptionType.SHARED else entry_hash
            return dispatchers.sharing(place.cursor, start, self._delays, policy, hash_of)
        self._delays.clear()
        return SingleActiveDispatcher(
            place.acks,
            start,
            failover=type_ is SubscriptionType.FAILOVER,
            partition=self._partition,
            successor=place.source.next_position,
            active_changed=self._tell_active,
        )

    def remove(self, consumer: AttachedConsumer) -> None:
        """Removes a consumer; the others get what it had not acknowledged. Does nothing the second time."""
        if self._place.dispatcher is not None:
            self._place.dispatcher.remove(consumer)

    def remove_all(self) -> None:
        """Removes all consumers, forgets their dispatcher, and tells their clients to subscribe again."""
        for consumer in self.consumers:
            self.remove(consumer)
            consumer.connection.consumer_detached(consumer)
        assert self.state is not AttachmentState.SERVING, "a consumer is left behind"
        self._place.dispatcher = None
        self._delays.pause()

    def check(self) -> None:
        """Asserts what must always hold."""
        dispatcher = self._place.dispatcher
        consumers = self.consumers
        ids = {(id(consumer.connection), consumer.consumer_id) for consumer in consumers}
        assert len(ids) == len(consumers), "a consumer is attached twice"
        for consumer in consumers:
            assert consumer.unacked >= 0, "more was acknowledged than was sent"
        if isinstance(dispatcher, SharedDispatcher):
            assert self.type in SHARING, f"shared among the consumers of an {self.type.name} subscription"
            dispatcher.check()
        elif isinstance(dispatcher, SingleActiveDispatcher):
            assert self.type not in SHARING, f"one consumer is served of a {self.type.name} subscription"
            active = dispatcher.active
            assert (active is None) == (not consumers), "the served consumer is none, or one that left"
            assert active is None or active in consumers, "a consumer that left is served"
            alone = len(consumers) <= 1
            assert alone or self.type is SubscriptionType.FAILOVER, "an exclusive consumer is not alone"
