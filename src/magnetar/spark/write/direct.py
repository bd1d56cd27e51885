"""At-least-once delivery: tasks publish directly to the target."""

from __future__ import annotations

import time
from collections.abc import Iterable

from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark.targets import Targets
from magnetar.spark.write.staged import StagedEntry
from magnetar.wire import pulsar_pb2 as pb


def publish_directly(
    client: Client, targets: Targets, entries: Iterable[StagedEntry], schema: pb.Schema | None
) -> None:
    """Publishes with producer names from the broker, and returns when all entries are durable."""
    producers: dict[tuple[str, int], Producer] = {}
    next_ids: dict[tuple[str, int], int] = {}
    try:
        for staged in entries:
            place = (staged.topic, staged.partition)
            producer = producers.get(place)
            if producer is None:
                topic = targets.partition(*place)
                producer = producers[place] = Producer(client, topic, schema=schema)
                next_ids[place] = 0
            entry = staged.entry(producer.name.encode(), next_ids[place], time.time_ns() // 1_000_000)
            producer.send(next_ids[place], entry, staged.messages)
            next_ids[place] += staged.messages
        for producer in producers.values():
            producer.flush()
    finally:
        for producer in producers.values():
            producer.close()
