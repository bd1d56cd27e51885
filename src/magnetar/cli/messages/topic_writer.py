"""Publishes messages to a topic: chooses partitions and forms batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.cli.messages.topic_reading import topics_of
from magnetar.client.compression import compress, compression_type
from magnetar.client.producer import Producer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

if TYPE_CHECKING:
    from magnetar.client.client import Client

_BATCH_MESSAGES_MAX: Final = 1000
_BATCH_BYTES_MAX: Final = 128 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send."""

    payload: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    is_null: bool = False


def partition_of_key(key: str, partitions: int) -> int:
    """Number of the partition to which clients send a key by default: Java's hash of the text, without its
    sign."""
    value = 0
    units = key.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


class _Partition:
    """A producer and its open batch."""

    def __init__(self, producer: Producer, compression: pb.CompressionType, schema_version: bytes) -> None:
        self.producer = producer
        self._compression = compression
        self._schema_version = schema_version
        self._next_id = producer.last_sequence_id + 1
        self._batch: list[tuple[pb.SingleMessageMetadata, bytes]] = []
        self._batch_bytes = 0

    def send(self, message: OutgoingMessage) -> None:
        # Keys have entries of their own, so that Key_Shared can part them; so have delays.
        if message.key is not None or message.deliver_at_ms is not None:
            self.close_batch()
            self._send_alone(message)
            return
        single = pb.SingleMessageMetadata(payload_size=len(message.payload))
        _describe(single, message)
        self._batch.append((single, message.payload))
        self._batch_bytes += len(message.payload)
        if len(self._batch) >= _BATCH_MESSAGES_MAX or self._batch_bytes >= _BATCH_BYTES_MAX:
            self.close_batch()

    def _send_alone(self, message: OutgoingMessage) -> None:
        metadata = self._metadata(len(message.payload))
        _describe(metadata, message)
        if message.deliver_at_ms is not None:
            metadata.deliver_at_time = message.deliver_at_ms
        self.producer.send(self._next_id, build_entry(metadata, compress(self._compression, message.payload)))
        self._next_id += 1

    def close_batch(self) -> None:
        if not self._batch:
            return
        count = len(self._batch)
        payload = build_batch(self._batch)
        metadata = self._metadata(len(payload))
        metadata.num_messages_in_batch = count
        self.producer.send(self._next_id, build_entry(metadata, compress(self._compression, payload)), count)
        self._next_id += count
        self._batch, self._batch_bytes = [], 0

    def _metadata(self, size: int) -> pb.MessageMetadata:
        metadata = pb.MessageMetadata(
            producer_name=self.producer.name,
            sequence_id=self._next_id,
            publish_time=time.time_ns() // 1_000_000,
        )
        if self._schema_version:
            metadata.schema_version = self._schema_version
        if self._compression != pb.CompressionType.NONE:
            metadata.compression = self._compression
            metadata.uncompressed_size = size
        return metadata


def _describe(metadata: pb.MessageMetadata | pb.SingleMessageMetadata, message: OutgoingMessage) -> None:
    if message.key is not None:
        metadata.partition_key = message.key
    if message.event_time_ms is not None:
        metadata.event_time = message.event_time_ms
    if message.is_null:
        metadata.null_value = True
    for key, value in message.properties.items():
        metadata.properties.add(key=key, value=value)


class TopicWriter:
    """Sends to all partitions of a topic: messages with a key by its hash, the others in turn."""

    def __init__(
        self, client: Client, topic: TopicName, *, compression: str = "none", schema_version: bytes = b""
    ) -> None:
        """`schema_version`: version of the schema of the payloads; empty: none. Raises RefusedError,
        UnreachableError, UnknownCompressionError."""
        self._schema_version = schema_version
        self._client = client
        self._compression = compression_type(compression)
        self._topics = topics_of(client, topic)
        self._open: dict[TopicName, _Partition] = {}
        self._turn = 0

    def send(self, message: OutgoingMessage) -> None:
        """Sends a message, or adds it to a batch. It is durable after `flush`."""
        count = len(self._topics)
        if message.key is not None:
            number = partition_of_key(message.key, count)
        else:
            number = self._turn = (self._turn + 1) % count
        topic = self._topics[number]
        if topic not in self._open:
            self._open[topic] = _Partition(
                Producer(self._client, topic), self._compression, self._schema_version
            )
        self._open[topic].send(message)

    def flush(self) -> Iterator[tuple[TopicName, Position | None]]:
        """Waits until all messages are durable. Yields partition and position of each entry; None for a
        duplicate."""
        for partition in self._open.values():
            partition.close_batch()
        found = [(topic, place) for topic, each in self._open.items() for place in each.producer.flush()]
        return iter(found)

    def close(self) -> None:
        """Closes the producers. Call `flush` before: it does not wait for messages."""
        for each in self._open.values():
            each.producer.close()
        self._open.clear()
