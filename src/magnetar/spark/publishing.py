"""Copies a batch into the target so that doing it twice makes no difference.

Every partition of the target has one producer name per sink, and every message a number made of batch and
place in the batch, so the broker drops what it has. Where the broker has forgotten the producer, which
it may after some hours without traffic, the partition itself is read from where the batch began.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import last_position, read_range
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.staged import StagedEntry
from magnetar.wire.payload import entry_layout, parse_metadata

SEQUENCE_BITS: Final = 32
"""Low bits of a sequence number: place in the batch. Above them: the batch, so that numbers always grow."""

ROWS_PER_BATCH_MAX: Final = 1 << SEQUENCE_BITS
BATCHES_MAX: Final = 1 << (63 - SEQUENCE_BITS)


class Publisher:
    """Copies one batch."""

    def __init__(
        self,
        client: Client,
        partitions: Mapping[int, TopicName],
        sink_id: str,
        batch_id: int,
        resume: Mapping[str, Position | None] | None,
    ) -> None:
        """
        Args:
            partitions: of the target; {-1: topic} when it is not partitioned.
            resume: None when no row of the batch can have been copied before; else where each partition ended
                before the batch.
        """
        assert 0 <= batch_id < BATCHES_MAX
        self._client = client
        self._partitions = partitions
        self._sink_id = sink_id
        self._base = batch_id << SEQUENCE_BITS
        self._resume = resume
        self._producers: dict[int, Producer] = {}
        self._next: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        """Highest number that is in the partition already."""

    def publish(self, entries: Iterable[StagedEntry]) -> int:
        """Copies the entries, in order per partition.

        Returns when all is durable: how many messages were sent, not having been there as far as known.
        """
        copied = 0
        for staged in entries:
            producer = self._producers.get(staged.partition)
            if producer is None:
                producer = self._open(staged.partition)
            sequence_id = self._next[staged.partition]
            self._next[staged.partition] += staged.messages
            if sequence_id + staged.messages - 1 <= self._stored[staged.partition]:
                continue
            now_ms = time.time_ns() // 1_000_000
            entry = staged.entry(producer.name.encode(), sequence_id, now_ms)
            producer.send(sequence_id, entry, staged.messages)
            copied += staged.messages
        for producer in self._producers.values():
            producer.flush()
        return copied

    def _open(self, partition: int) -> Producer:
        topic = self._partitions.get(partition)
        if topic is None:
            raise SparkSourceError(
                f"rows were made for partition {partition}, which the target does not have"
            )
        producer = Producer(self._client, topic, name=self._sink_id)
        self._producers[partition] = producer
        self._next[partition] = self._base
        self._stored[partition] = producer.last_sequence_id
        if self._resume is not None and producer.last_sequence_id < self._base:
            self._stored[partition] = self._scan(topic, self._resume.get(str(topic)))
        return producer

    def _scan(self, topic: TopicName, before: Position | None) -> int:
        """Highest number of this sink's messages behind `before`; -1 when there is none."""
        start = EARLIEST if before is None else Position(before.ledger_id, before.entry_id + 1)
        last = last_position(self._client, topic)
        highest = -1
        if last is None or last < start:
            return highest
        for columns in read_range(self._client, topic, start, Position(last.ledger_id, last.entry_id + 1)):
            for entry in columns.entries:
                _, metadata_at, payload_at = entry_layout(entry)
                metadata = parse_metadata(entry[metadata_at:payload_at])
                if metadata.producer_name == self._sink_id:
                    highest = max(highest, metadata.sequence_id, metadata.highest_sequence_id)
        return highest

    def close(self) -> None:
        """Ends the producers."""
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()
