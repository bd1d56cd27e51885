"""Copies a batch into its targets so that doing it twice makes no difference.

Every partition of a target has one producer name per sink, and every message a number made of batch and
place in the batch, so the broker drops what it has. Where the broker has forgotten the producer, which
it may after some hours without traffic, the partition itself is read from where the batch began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import last_position, read_range
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.targets import Targets
from magnetar.spark.write.sink_options import BATCHES_MAX
from magnetar.spark.write.staged import StagedEntry
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout, parse_metadata

SEQUENCE_BITS: Final = 32
"""Low bits of a sequence number: place in the batch. Above them: the batch, so that numbers always grow."""

ROWS_PER_BATCH_MAX: Final = 1 << SEQUENCE_BITS

_Place: TypeAlias = tuple[str, int]
"""`topic` and `partition` of a staged entry."""


class Publisher:
    """Copies one batch."""

    def __init__(
        self,
        client: Client,
        targets: Targets,
        sink_id: str,
        batch_id: int,
        resume: Mapping[str, Position | None] | None,
        *,
        prepare: Callable[[TopicName], None] | None = None,
        schema: pb.Schema | None = None,
    ) -> None:
        """Args: resume: None when no row of the batch can have been copied before; else where each partition
        ended before the batch. prepare: has a topic drop duplicates. Called where the broker knows no number
        of this sink: in the steady state the number suffices, and no request is necessary. schema: the schema
        of the values."""
        assert 0 <= batch_id < BATCHES_MAX <= 1 << (63 - SEQUENCE_BITS)
        self._client = client
        self._targets = targets
        self._sink_id = sink_id
        self._batch_id = batch_id
        self._base = batch_id << SEQUENCE_BITS
        self._resume = resume
        self._prepare = prepare
        self._schema = schema
        self._prepared: set[TopicName] = set()
        self._producers: dict[_Place, Producer] = {}
        self._next: dict[_Place, int] = {}
        self._stored: dict[_Place, int] = {}
        """Highest number that is in the partition already."""

    def publish(self, entries: Iterable[StagedEntry]) -> int:
        """Copies the entries, in order per partition.

        Returns when all is durable: how many messages were sent, not having been there as far as known.
        """
        copied = 0
        for staged in entries:
            place = (staged.topic, staged.partition)
            producer = self._producers.get(place)
            if producer is None:
                producer = self._open(place)
            sequence_id = self._next[place]
            self._next[place] += staged.messages
            if self._next[place] > self._base + ROWS_PER_BATCH_MAX:
                raise SparkSourceError(f"more than {ROWS_PER_BATCH_MAX} rows for {producer.topic} in a batch")
            if sequence_id + staged.messages - 1 <= self._stored[place]:
                continue
            now_ms = time.time_ns() // 1_000_000
            entry = staged.entry(producer.name.encode(), sequence_id, now_ms)
            producer.send(sequence_id, entry, staged.messages)
            copied += staged.messages
        for producer in self._producers.values():
            producer.flush()
        return copied

    def _open(self, place: _Place) -> Producer:
        topic = self._targets.partition(*place)
        producer = self._producer(topic)
        if producer.last_sequence_id < 0 and self._prepare is not None and topic.base not in self._prepared:
            producer.close()
            self._prepare(topic.base)
            self._prepared.add(topic.base)
            producer = self._producer(topic)
        self._producers[place] = producer
        if self._resume is None and producer.last_sequence_id >= self._base:
            # What is there was cut from other rows: skipping by number would lose some of these.
            raise SparkSourceError(
                f"{topic} holds rows of batch {self._batch_id} that the sink's commit log did not know of:"
                " another driver of the query is at work, or the log was deleted. Stop the other one and"
                " start again, or begin with a new checkpoint"
            )
        self._next[place] = self._base
        self._stored[place] = producer.last_sequence_id
        if self._resume is not None and producer.last_sequence_id < self._base:
            self._stored[place] = self._scan(topic, self._resume.get(str(topic)))
        return producer

    def _producer(self, topic: TopicName) -> Producer:
        return Producer(self._client, topic, name=self._sink_id, schema=self._schema)

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
