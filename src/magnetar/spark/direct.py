"""Writing at least once: tasks publish to the target themselves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark.staged import StagedEntry


def publish_directly(
    client: Client, partitions: Mapping[int, TopicName], entries: Iterable[StagedEntry]
) -> None:
    """Publishes under names that the broker chooses; returns when all is durable."""
    producers: dict[int, Producer] = {}
    next_ids: dict[int, int] = {}
    try:
        for staged in entries:
            number = staged.partition
            producer = producers.get(number)
            if producer is None:
                producer = producers[number] = Producer(client, partitions[number])
                next_ids[number] = 0
            entry = staged.entry(producer.name.encode(), next_ids[number], time.time_ns() // 1_000_000)
            producer.send(next_ids[number], entry, staged.messages)
            next_ids[number] += staged.messages
        for producer in producers.values():
            producer.flush()
    finally:
        for producer in producers.values():
            producer.close()
