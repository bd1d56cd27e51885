"""The publish path of a topic that stores nothing: what was admitted is delivered and answered (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from magnetar.base.clock import Clock
from magnetar.broker.errors import RefusedError, wire_code
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.publish_path import Limited, PublishPath
from magnetar.broker.topic.topic_tally import TopicTally
from magnetar.wire.events import SendRun


class Receiver(Protocol):
    """A subscription."""

    def deliver(self, entries: list[bytes], counts: list[int] | None) -> None:
        """Sends a vector to its consumers."""


class UnstoredPublishing(PublishPath):
    """The publish path of one non-persistent topic."""

    def __init__(
        self, subscriptions: Mapping[str, Receiver], clock: Clock, limits: Limited, tally: TopicTally
    ) -> None:
        """`subscriptions`: of the topic, at all times."""
        super().__init__(limits, tally)
        self._subscriptions = subscriptions
        self._clock = clock

    def _take(self, producer: Producer, run: SendRun) -> None:
        counts = run.counts
        messages = len(run.entries) if counts is None else sum(counts)
        self.tally.accepted(producer, messages, run.size_bytes)
        self.tally.last_publish_ms = self._clock.now_ms()
        for subscription in self._subscriptions.values():
            subscription.deliver(run.entries, counts)
        connection = producer.connection
        connection.unstored_receipts(producer, run.sequence_ids, run.highest_sequence_ids)
        connection.published(run.size_bytes)

    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        producer.connection.send_errors(producer, run.sequence_ids, wire_code(error), str(error))
        producer.connection.published(run.size_bytes)
