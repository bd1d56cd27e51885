"""Sends messages that cannot be decoded unchanged to a dead letter topic. Runs in executors.

Letters are written at least once: a repeated task sends its letters again, and so does each query of a
DataFrame. Copies have the same ORIGIN_MESSAGE_ID.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.targets import target_partitions
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

_ERROR_CHARACTERS_MAX: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeadLetters:
    """The dead letters of one task. Connects at the first letter."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._topic = TopicName.parse(options.dead_letter_topic)
        self._client: Client | None = None
        self._producers: dict[TopicName, Producer] = {}
        self._sent: dict[TopicName, int] = {}

    def send(self, topic: TopicName, letters: Sequence[Mapping[str, object]]) -> None:
        """Sends broken messages of one partition, and returns when all are durable. Raises ClientError.

        Broken messages of the dead-letter topic itself, which a pattern may match, are not sent: each would
        make another one.
        """
        if topic.base == self._topic:
            return
        producer = self._producer(topic.partition)
        for letter in letters:
            number = self._sent.get(producer.topic, 0)
            self._sent[producer.topic] = number + 1
            producer.send(number, _entry(topic, letter, producer, number))
        producer.flush()

    def close(self) -> None:
        """Closes the connections."""
        for producer in self._producers.values():
            producer.close()
        if self._client is not None:
            self._client.close()

    def _producer(self, partition: int) -> Producer:
        """The producer for the letters of one partition, which keep their order."""
        if self._client is None:
            place = self._options.connection
            self._client = Client(place.service_url, place.client, admin_url=place.admin_url)
        targets = list(target_partitions(self._client, self._topic).values())
        target = targets[max(partition, 0) % len(targets)]
        if target not in self._producers:
            self._producers[target] = Producer(self._client, target)
        return self._producers[target]


def _entry(topic: TopicName, letter: Mapping[str, Any], producer: Producer, number: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=producer.name, sequence_id=number, publish_time=time.time_ns() // 1_000_000
    )
    key = letter["key"]
    if key is not None and letter["key_is_string"]:
        metadata.partition_key = key.decode("utf-8", "replace")
    elif key is not None:
        metadata.partition_key = base64.b64encode(key).decode()
        metadata.partition_key_b64_encoded = True
    if letter["event_time"] is not None:
        metadata.event_time = (letter["event_time"] - _EPOCH) // timedelta(milliseconds=1)
    told = {
        "REAL_TOPIC": str(topic),
        "ORIGIN_MESSAGE_ID": letter["message_id"],
        "EXCEPTION": letter["error"][:_ERROR_CHARACTERS_MAX],
    }
    # A message that was a dead letter before keeps its first origin.
    for name, text in {**told, **dict(letter["properties"])}.items():
        metadata.properties.add(key=name, value=text)
    payload = letter["payload"]
    if metadata.ByteSize() + len(payload) > producer.message_bytes_max:
        # The payload of a large message in pieces is left out: its id leads to it.
        metadata.properties.add(key="PAYLOAD_LEFT_OUT_BYTES", value=str(len(payload)))
        metadata.null_value = True
        payload = b""
    return build_entry(metadata, payload)
