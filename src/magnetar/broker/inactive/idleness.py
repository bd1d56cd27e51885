"""Whether topics are in use, and since when they are not (pure)."""

from __future__ import annotations

from collections.abc import Container

from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.topic.any_topic import AnyTopic


def has_clients(topic: AnyTopic) -> bool:
    """Whether a producer, a waiting producer or a consumer is attached."""
    if topic.producers or topic.access.waiting_count:
        return True
    return any(subscription.consumers for subscription in topic.subscriptions.values())


def in_use(topic: AnyTopic, mode: DeleteMode) -> bool:
    """Whether something keeps the topic."""
    if has_clients(topic):
        return True
    if mode is DeleteMode.NO_SUBSCRIPTIONS:
        return bool(topic.subscriptions)
    return any(subscription.backlog_entries for subscription in topic.subscriptions.values())


class IdleTimes:
    """Since when topics are not in use, as far as rounds have seen it.

    By a clock that only runs: one that is set ahead would have topics deleted that were used a moment ago.
    """

    def __init__(self) -> None:
        self._since_ms: dict[AnyTopic, tuple[float, int]] = {}
        """With when something was published last, as the topic has it."""

    def __len__(self) -> int:
        return len(self._since_ms)

    def used(self, topic: AnyTopic) -> None:
        """The topic is in use."""
        self._since_ms.pop(topic, None)

    def idle_ms(self, topic: AnyTopic, now_ms: float) -> int:
        """For how long the topic was seen not in use; 0 when this is the first time."""
        since_ms, published_ms = self._since_ms.get(topic, (now_ms, topic.last_publish_ms))
        if published_ms != topic.last_publish_ms:
            # By a producer that came and left between two rounds.
            since_ms = now_ms
        self._since_ms[topic] = since_ms, topic.last_publish_ms
        return int(now_ms - since_ms)

    def keep_only(self, topics: Container[AnyTopic]) -> None:
        """Forgets topics that are not loaded any more."""
        for topic in [topic for topic in self._since_ms if topic not in topics]:
            del self._since_ms[topic]
