"""Counters of a subscription for its statistics: they only grow, and record when something happened last.

Counted for each command and each vector, never for each message. Kept in memory: a topic that is loaded again
begins with zeros, as in Pulsar.
"""

from __future__ import annotations

from magnetar.broker.dispatch.consumer import Consumer


class Tally:
    """Counters in messages but for `expired`; times in Unix ms, 0: it never happened."""

    __slots__ = (
        "acked",
        "acked_ms",
        "advanced_ms",
        "bytes_out",
        "expired",
        "expired_last",
        "expired_ms",
        "flow_ms",
        "messages_out",
        "redelivered",
        "sent_ms",
        "since_ms",
    )

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """When the counters began with zeros."""
        self.messages_out = self.bytes_out = 0
        """What consumers were sent; bytes are those of entries with the frames around them."""
        self.acked = 0
        """Messages that consumers acknowledged."""
        self.redelivered = 0
        """Messages that consumers gave back to get them again."""
        self.expired = 0
        """Entries that expiry removed from the backlog."""
        self.expired_last = 0
        """Entries that the last expiry removed."""
        self.acked_ms = self.sent_ms = self.flow_ms = 0
        self.advanced_ms = 0
        """When mark-delete last advanced."""
        self.expired_ms = 0
        """When expiry last examined the backlog, whether or not it removed something."""

    def flow(self, consumer: Consumer, now_ms: int) -> None:
        """A consumer asked for messages."""
        self.flow_ms = consumer.flow_ms = now_ms
        if not consumer.first_flow_ms:
            consumer.first_flow_ms = now_ms

    def sent(self, consumer: Consumer, entries: int, messages: int, size_bytes: int, now_ms: int) -> None:
        """A consumer was sent a vector."""
        consumer.entries_out += entries
        consumer.messages_out += messages
        consumer.bytes_out += size_bytes
        self.messages_out += messages
        self.bytes_out += size_bytes
        self.sent_ms = consumer.sent_ms = now_ms
        if not consumer.first_sent_ms:
            consumer.first_sent_ms = now_ms

    def acknowledged(self, consumer: Consumer, messages: int, now_ms: int) -> None:
        """A consumer acknowledged."""
        consumer.acks += messages
        self.acked += messages
        self.acked_ms = consumer.acked_ms = now_ms

    def given_back(self, consumer: Consumer, messages: int) -> None:
        """A consumer wants messages again."""
        consumer.redelivered += messages
        self.redelivered += messages

    def expiry(self, entries: int, now_ms: int) -> None:
        """Expiry removed this many entries."""
        self.expired += entries
        self.expired_last = entries
        self.expired_ms = now_ms
