"""What Spark calls of the source, called without Spark: planning, tasks, micro-batches."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.table_shape import TableShape
from magnetar.spark.source import MagnetarSource
from magnetar.tables.value_formats import BYTES, TEXT
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.standalone import StandaloneProcess

Row = dict[str, Any]


def options(standalone: StandaloneProcess, topic: str, **more: str) -> dict[str, str]:
    """Options that lead to the topic; one URL is enough."""
    where = {} if any(name in more for name in ("topics", "topicsPattern", "namespace")) else {"topic": topic}
    return {"service.url": standalone.http_url, **where, **more}


def schema_of(source: MagnetarSource) -> StructType:
    """The schema that Spark hands to readers, which it parses if the source gives it as text."""
    schema = source.schema()
    if isinstance(schema, StructType):
        return schema
    chosen = ReadOptions.parse(source.options)
    plain = TEXT if chosen.value.format == "string" else BYTES
    return TableShape(chosen.columns, plain, rescue=chosen.rescue_column).spark_schema()


def rows_of(task: bytes, partitions: Sequence[Any]) -> list[Row]:
    """The rows of all partitions, each read by a copy of the reader, which is pickled as for tasks."""
    reader: DataSourceReader | DataSourceStreamReader = pickle.loads(task)
    return [
        row
        for partition in partitions
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]


def batch_rows(standalone: StandaloneProcess, topic: str, **more: str) -> list[Row]:
    """What a batch read gives."""
    source = MagnetarSource(options(standalone, topic, **more))
    reader = source.reader(schema_of(source))
    return rows_of(pickle.dumps(reader), reader.partitions())


def values(rows: list[Row]) -> list[Any]:
    """The values, bytes as text."""
    return [row["value"].decode() if isinstance(row["value"], bytes) else row["value"] for row in rows]


class MicroBatches:
    """One streaming query, whose batches the test runs."""

    def __init__(
        self,
        standalone: StandaloneProcess,
        topic: str,
        *,
        offset: dict[str, str] | None = None,
        available_now: bool = False,
        **more: str,
    ) -> None:
        """`offset` is that of a checkpoint, after a restart."""
        source = MagnetarSource(options(standalone, topic, **more))
        self.reader = source.streamReader(schema_of(source))
        self.task = pickle.dumps(self.reader)
        """Tasks get the reader as it was before the query asked anything."""
        self.offset = self.reader.initialOffset() if offset is None else offset
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def batch(self, *, commit: bool = True) -> list[Row]:
        """The rows of one trigger; none when there is nothing to do."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return []
        rows = rows_of(self.task, self.reader.partitions(self.offset, end))
        if commit:
            self.offset = end
            self.reader.commit(end)
        return rows

    def drain(self) -> list[list[Row]]:
        """Batches until one is empty."""
        found = []
        while rows := self.batch():
            found.append(rows)
        return found


def publish(
    standalone: StandaloneProcess, topic: str, entries: list[tuple[pb.MessageMetadata, bytes]]
) -> list[Position]:
    """Publishes entries as they are given; of the metadata the producer's own fields are filled in."""
    with (
        Client(standalone.broker_url, admin_url=standalone.http_url) as client,
        Producer(client, TopicName.parse(topic)) as producer,
    ):
        next_id = 0
        for metadata, payload in entries:
            count = max(metadata.num_messages_in_batch, 1)
            metadata.producer_name, metadata.sequence_id = producer.name, next_id
            metadata.publish_time = metadata.publish_time or time.time_ns() // 1_000_000
            producer.send(next_id, build_entry(metadata, payload), count)
            next_id += count
        return [position for position in producer.flush() if position is not None]


def plain(value: str, **fields: Any) -> tuple[pb.MessageMetadata, bytes]:
    """An entry of one message."""
    return pb.MessageMetadata(**fields), value.encode()


def batched(*messages: str | None) -> tuple[pb.MessageMetadata, bytes]:
    """An entry of several; None is a null value."""
    payload = build_batch(
        [
            (pb.SingleMessageMetadata(null_value=True if each is None else None), (each or "").encode())
            for each in messages
        ]
    )
    return pb.MessageMetadata(num_messages_in_batch=len(messages)), payload


def pieces(value: str, *, of: int, uuid: str) -> list[tuple[pb.MessageMetadata, bytes]]:
    """A large message in `of` pieces."""
    size = -(-len(value) // of)
    return [
        plain(
            value[number * size : (number + 1) * size],
            uuid=uuid,
            chunk_id=number,
            num_chunks_from_msg=of,
            total_chunk_msg_size=len(value),
        )
        for number in range(of)
    ]
