"""Which non-persistent topics are there. They are made when first used, and nothing remembers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine

from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.limits.limits import Limits
from magnetar.broker.nonpersistent.nonpersistent_topic import NonPersistentTopic
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.tasks import SingleFlight


class NonPersistentTopics:
    """The non-persistent topics of a broker."""

    def __init__(
        self,
        clock: Clock,
        spawn: Callable[[Coroutine[object, object, object]], None],
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
        """Removes a topic and detaches its clients."""
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
