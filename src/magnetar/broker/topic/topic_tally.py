"""Counters of what a topic accepted: they only grow. Kept in memory, from the topic's load on."""

from __future__ import annotations

from magnetar.broker.topic.producer import Producer


class TopicTally:
    """Counters of one topic."""

    __slots__ = ("bytes_in", "last_publish_ms", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.last_publish_ms = 0
        """When messages last became durable, or arrived where nothing is stored, Unix ms; 0: never."""

    def accepted(self, producer: Producer, messages: int, size_bytes: int) -> None:
        """A vector of a producer was accepted."""
        producer.messages_in += messages
        producer.bytes_in += size_bytes
        self.messages_in += messages
        self.bytes_in += size_bytes

    def amounts(self) -> tuple[int, int]:
        """Messages and bytes."""
        return self.messages_in, self.bytes_in
