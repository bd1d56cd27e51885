"""The limits of one loaded topic, and the checks on the data path.

A limit that is not set costs nothing: `gate` and a subscription's `throttle` are None then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.ids import ConsumerId
from magnetar.broker.dispatch.consumer import UNACKED_MESSAGES_MAX
from magnetar.broker.dispatch.unacked import UNACKED_MESSAGES_MAX_SHARED, UnackedOfBroker
from magnetar.broker.errors import (
    ConsumerBusyError,
    EncryptionRequiredError,
    NotAllowedError,
    ProducerBusyError,
)
from magnetar.broker.filters.rules import FilterRules
from magnetar.broker.limits.delivering import Counters, DispatchThrottle, limiter
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.publish_gate import PublishGate, gate_for
from magnetar.broker.limits.subscribing import SubscribeLimiter
from magnetar.broker.limits.tenants import StoredMark
from magnetar.broker.limits.token_bucket import RateLimiter
from magnetar.broker.topic.producer import Producer
from magnetar.runtime.alarms import Alarms

_TYPE_NAMES: Final = {
    "EXCLUSIVE": "Exclusive",
    "SHARED": "Shared",
    "FAILOVER": "Failover",
    "KEY_SHARED": "Key_Shared",
}


@dataclass(frozen=True, slots=True)
class SubscriptionLimits:
    """The limits of one subscription."""

    unacked_max_per_consumer: int = UNACKED_MESSAGES_MAX
    unacked_max: int = UNACKED_MESSAGES_MAX_SHARED
    throttle: DispatchThrottle | None = None
    delayed_delivery: bool = True
    filters: FilterRules = field(default_factory=FilterRules)
    unacked_of_broker: UnackedOfBroker | None = None
    """Counts over all subscriptions; None: they have no limit together."""


class Holder(Protocol):
    """A subscription, as its limits see it."""

    @property
    def consumers(self) -> Collection[object]: ...


class LimitedSubscription(Protocol):
    """A subscription that takes limits."""

    def keep(self, limits: SubscriptionLimits) -> None:
        """Limits that hold from now on."""


class LimitedTopic(Protocol):
    """A topic, as its limits see it."""

    @property
    def producers(self) -> dict[str, Producer]: ...
    @property
    def subscriptions(self) -> Mapping[str, LimitedSubscription]: ...
    def send_producer_away(self, producer: Producer) -> None: ...


class TopicLimits:
    """The limits of one topic; call `apply` whenever a policy changed."""

    __slots__ = (
        "_clock",
        "_making",
        "_published",
        "_subscribes",
        "_topic_rate",
        "gate",
        "limits",
        "stored",
        "unacked_of_broker",
    )

    def __init__(self, clock: Clock, published: Counters) -> None:
        """`published` returns the amounts that the topic has accepted so far."""
        self._published = published
        self.limits = Limits()
        self.gate: PublishGate | None = None
        """Called for each published vector; None without a publish limit."""
        self.unacked_of_broker: UnackedOfBroker | None = None
        """Set before subscriptions are opened, where all of them together have a limit."""
        self.stored: StoredMark | None = None
        """What the topic's tenant stores; None for a topic that stores nothing."""
        self._clock = clock
        self._making: dict[str, int] = {}
        """Subscriptions that are being made, and by how many: two may make one of the same name."""
        self._topic_rate: RateLimiter | None = None
        self._subscribes: SubscribeLimiter | None = None

    @property
    def works_alone(self) -> bool:
        """Whether `enforcement.enforce` has anything to do."""
        return bool(self.limits.ttl_s or self.limits.quotas)

    def apply(self, limits: Limits, topic: LimitedTopic, alarms: Alarms) -> None:
        """Puts these limits in force, for connected clients too."""
        if limits == self.limits:
            return
        before, self.limits = self.limits, limits
        if self.gate is not None:
            self.gate.close()
        self.gate = gate_for(limits, self._clock, alarms)
        rate = limits.dispatch_rate
        if rate != before.dispatch_rate:
            now_ms = self._clock.now_ms()
            self._topic_rate = limiter(rate, self._published, now_ms) if rate.limits else None
        if limits.subscribe_rate != before.subscribe_rate:
            rate = limits.subscribe_rate
            self._subscribes = SubscribeLimiter(rate) if rate.limits else None
        if limits.encryption_required:
            for producer in list(topic.producers.values()):
                if not producer.encrypted:
                    topic.send_producer_away(producer)
        for name, subscription in topic.subscriptions.items():
            subscription.keep(self.of_subscription(name))

    def of_subscription(self, name: str) -> SubscriptionLimits:
        """The limits of a subscription of this topic, with a bucket of its own."""
        limits, limiters = self.limits, []
        if self._topic_rate is not None:
            limiters.append(self._topic_rate)
        if limits.group is not None and limits.group.dispatch is not None:
            limiters.append(limits.group.dispatch)
        rate = dict(limits.subscription_rates).get(name, limits.subscription_dispatch_rate)
        if rate.limits:
            limiters.append(limiter(rate, self._published, self._clock.now_ms()))
        return SubscriptionLimits(
            limits.unacked_max_per_consumer,
            limits.unacked_max_per_subscription,
            DispatchThrottle(self._clock, tuple(limiters)) if limiters else None,
            limits.delayed_delivery,
            limits.entry_filters,
            self.unacked_of_broker,
        )

    def admit_producer(self, producers: Mapping[str, Producer], name: str, *, encrypted: bool) -> None:
        """Raises EncryptionRequiredError, ProducerBusyError, StoredQuotaError. A producer that comes back
        takes no new place."""
        limits = self.limits
        if self.stored is not None:
            self.stored.check()
        if limits.encryption_required and not encrypted:
            raise EncryptionRequiredError(
                "Encryption is required", remedy="this topic takes encrypted messages only"
            )
        if 0 < limits.producers_max <= len(producers) and name not in producers:
            raise ProducerBusyError(
                "Topic reached max producers limit", remedy=f"it may have {limits.producers_max}"
            )

    def admit_subscribe(
        self,
        subscriptions: Mapping[str, Holder],
        name: str,
        type_name: str,
        caller: tuple[str, str, ConsumerId],
    ) -> None:
        """Before a subscription is opened or made. `caller`: address, consumer's name and id.

        Raises NotAllowedError.
        """
        limits = self.limits
        shown = _TYPE_NAMES[type_name]
        if shown not in limits.subscription_types:
            raise NotAllowedError(
                f"Topic doesn't support {shown} sub type!",
                remedy=f"enabled are {', '.join(sorted(limits.subscription_types)) or 'none'}",
            )
        self.admit_subscription(subscriptions, name)
        if self._subscribes is not None:
            self._subscribes.admit(*caller, self._clock.now_ms())

    def admit_subscription(self, subscriptions: Mapping[str, Holder], name: str) -> None:
        """Raises NotAllowedError when one more subscription would be too many."""
        most = self.limits.subscriptions_max
        # Subscriptions under creation count: many at once would all find one free place.
        if name not in subscriptions and 0 < most <= len((self._making.keys() - {name}).union(subscriptions)):
            raise NotAllowedError(
                "Exceed the maximum number of subscriptions of the topic", remedy=f"it may have {most}"
            )

    @contextmanager
    def making_subscription(self, subscriptions: Mapping[str, Holder], name: str) -> Iterator[None]:
        """Reserves a place while the block creates a subscription.

        Raises NotAllowedError when there are too many, for consumers, producers and administrators alike.
        """
        self.admit_subscription(subscriptions, name)
        self._making[name] = self._making.get(name, 0) + 1
        try:
            yield
        finally:
            self._making[name] -= 1
            if not self._making[name]:
                del self._making[name]

    def admit_consumer(self, subscriptions: Mapping[str, Holder], name: str) -> None:
        """Raises ConsumerBusyError when one more consumer would be too many."""
        limits = self.limits
        most = limits.consumers_max_per_subscription
        if 0 < most <= len(subscriptions[name].consumers):
            raise ConsumerBusyError(
                "Subscription reached max consumers limit", remedy=f"{name} may have {most}"
            )
        most = limits.consumers_max
        if most and sum(len(each.consumers) for each in subscriptions.values()) >= most:
            raise ConsumerBusyError("Topic reached max consumers limit", remedy=f"it may have {most}")

    def close(self) -> None:
        """The topic closes: releases all waiting producers."""
        if self.gate is not None:
            self.gate.close()
