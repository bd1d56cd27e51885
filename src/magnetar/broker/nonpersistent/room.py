"""Which non-persistent topics are there. They are made when first used, and nothing remembers them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.nonpersistent.topic import NonPersistentTopic


class NonPersistentTopics:
    """The non-persistent topics of a broker."""

    def __init__(self, clock: Clock, spawn: Callable[[Coroutine[Any, Any, Any]], None]) -> None:
        """`spawn` runs what a topic does in the background."""
        self._clock = clock
        self._spawn = spawn
        self.topics: dict[str, NonPersistentTopic] = {}
        """By full name."""

    def find(self, name: TopicName) -> NonPersistentTopic | None:
        """The topic if it is there."""
        return self.topics.get(str(name))

    def create(self, name: TopicName) -> NonPersistentTopic:
        """The topic, made when it is missing."""
        topic = self.topics.get(str(name))
        if topic is None:
            topic = NonPersistentTopic(name, clock=self._clock, spawn=self._spawn)
            self.topics[str(name)] = topic
        return topic

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
