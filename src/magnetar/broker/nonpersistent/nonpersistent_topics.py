"""Which non-persistent topics are there. They are made when first used, and nothing remembers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.limits.limits import Limits
from magnetar.broker.nonpersistent.topic import NonPersistentTopic
from magnetar.broker.registry.names import topic_path
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.tasks import SingleFlight

if TYPE_CHECKING:
    from magnetar.broker.service import Broker


class NonPersistentTopics:
    """The non-persistent topics of a broker."""

    def __init__(
        self,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        alarms: Alarms,
        limits_of: Callable[[TopicName], Awaitable[Limits]],
    ) -> None:
        """`spawn` runs what a topic does in the background; `limits_of` tells which limits are in force."""
        self._clock = clock
        self._spawn = spawn
        self._alarms = alarms
        self._limits_of = limits_of
        self.topics: dict[str, NonPersistentTopic] = {}
        """By full name."""
        self.flights: SingleFlight[NonPersistentTopic] = SingleFlight()

    def find(self, name: TopicName) -> NonPersistentTopic | None:
        """The topic if it is there."""
        return self.topics.get(str(name))

    async def open(self, name: TopicName) -> NonPersistentTopic:
        """The topic, made when it is missing, with its limits. Raises MagnetarError."""
        limits = await self._limits_of(name)
        topic = self.topics.get(str(name))
        if topic is None:
            topic = NonPersistentTopic(name, clock=self._clock, spawn=self._spawn)
            topic.limits.apply(limits, topic, self._alarms)
            self.topics[str(name)] = topic
        return topic

    async def apply_limits(self, concerned: Callable[[TopicName], bool]) -> None:
        """Gives topics the limits that are in force now. Raises MagnetarError."""
        for topic in [topic for topic in self.topics.values() if concerned(topic.name)]:
            topic.limits.apply(await self._limits_of(topic.name), topic, self._alarms)

    def remove(self, topic: NonPersistentTopic) -> None:
        """Takes a topic away and sends its clients away."""
        if self.topics.get(str(topic.name)) is topic:
            del self.topics[str(topic.name)]
        topic.disconnect_clients()

    def names(self, namespace: NamespaceName) -> list[TopicName]:
        """Topics of a namespace that are there."""
        return [topic.name for topic in self.topics.values() if topic.name.namespace_name == namespace]

    def close(self) -> None:
        """Sends all clients away."""
        for topic in list(self.topics.values()):
            self.remove(topic)


async def opened(broker: Broker, name: TopicName, *, create: bool) -> NonPersistentTopic:
    """The topic, which is not loaded: made when `create` says so and it may be made.

    Raises TopicNotFoundError, PreconditionFailedError beyond limits.
    """
    broker.registry.check_serving()
    # Those who come at once are one for the limits.
    return await broker.nonpersistent.flights.run((str(name), create), lambda: _opened(broker, name, create))


async def _opened(broker: Broker, name: TopicName, create: bool) -> NonPersistentTopic:
    await broker.check_name(name)
    # A partition is there, and counted, from the day its topic has so many.
    if await broker.exists(name):
        return await _held(broker, name, create)
    if not (create and await broker.may_create(name)):
        raise TopicNotFoundError(f"Topic {name} not found")
    await broker.topic_turn(name.tenant)
    async with broker.topic_quota.take(name.namespace_name):
        return await _held(broker, name, create)


async def _held(broker: Broker, name: TopicName, create: bool) -> NonPersistentTopic:
    # Its namespace, or a partitioned topic that it is part of, may be going.
    async with broker.names.making(topic_path(name)):
        await broker.check_name(name)
        if not await broker.exists(name) and not (create and await broker.may_create(name)):
            raise TopicNotFoundError(f"Topic {name} not found")
        return await broker.nonpersistent.open(name)
