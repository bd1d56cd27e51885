"""Copies a batch into its targets; a repeated copy has no effect.

Each partition of a target has one producer name per sink. The sequence number of a message consists of the
batch and its place in the batch, so the broker drops repeated messages. After some hours without traffic, the
broker can forget the producer. Then the partition itself is read from the begin of the batch.
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
"""Low bits of a sequence number, for the place in the batch. The bits above are the batch, so numbers
grow."""

ROWS_PER_BATCH_MAX: Final = 1 << SEQUENCE_BITS

_Place: TypeAlias = tuple[str, int]
"""`topic` and `partition` of a staged entry."""


class Publisher:
    """Copies one batch into its targets."""

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
        """
        Args:
            resume: the end of each partition before the batch; None when no row of the batch can have been
                copied before.
            prepare: switches deduplication of a topic on. Called only when the broker knows no sequence
                number of this sink, so that usually no request is necessary.
            schema: the schema of the values.
        """
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
        """Highest sequence number that the partition already has."""

    def publish(self, entries: Iterable[StagedEntry]) -> int:
        """Copies the entries, in order within each partition.

        Returns, when all are durable, the count of messages that were sent because they were not known to
        exist.
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
            # The existing messages are of other rows: a skip by number would lose rows.
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
        """Highest sequence number of this sink's messages behind `before`; -1 without such messages."""
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
        """Closes the producers."""
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()
