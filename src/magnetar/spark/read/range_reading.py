"""Reads ranges of entries as Arrow record batches. Runs in executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from magnetar.arrow.decode import Decoder
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import TopicDataLossError
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.rescue import Rescue, placed
from magnetar.spark.read.spark_values import open_values
from magnetar.spark.read.table_shape import TableShape
from magnetar.tables.broker_entries import entries_from_broker
from magnetar.tables.history import LastFile, read_stretch
from magnetar.tables.history_columns import SegmentColumns
from magnetar.tables.large_messages import LookBack
from magnetar.tables.schema_formats import definitions_of
from magnetar.tables.stretches import Stretch


@dataclass(eq=False)
class RangePartition(InputPartition):
    """One task's range of one partition of a topic."""

    topic: str
    start: tuple[LedgerId, int]
    """Ledger and entry of the first entry."""
    end: tuple[LedgerId, int]
    """The position behind the last entry, which exists."""
    rows: int | None
    """Count of messages, estimated by the plan."""
    stretches: tuple[Stretch, ...] = ()
    """The range by the places of its entries at planning; empty when all entries are read from the broker."""
    size_bytes: int = 0
    """Size, estimated by the plan."""

    def __repr__(self) -> str:
        return f"RangePartition({self.topic} {self.start[0]}:{self.start[1]}..{self.end[0]}:{self.end[1]})"


@dataclass(eq=False)
class SeveralRanges(InputPartition):
    """The ranges of one task, which reads them one after the other."""

    ranges: tuple[RangePartition, ...]


@dataclass(eq=False)
class LimitedPartition(InputPartition):
    """The ranges of one task, which reads them in order up to a limit of rows."""

    ranges: tuple[RangePartition, ...]
    limit: int


def read_partition(
    options: ReadOptions, shape: TableShape, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of the partition. Raises TopicDataLossError when the start of a range is
    removed."""
    rescue = Rescue(options, shape)
    try:
        if isinstance(partition, RangePartition):
            yield from _rows(options, shape, [partition], rescue)
        elif isinstance(partition, SeveralRanges):
            yield from _rows(options, shape, partition.ranges, rescue)
        elif isinstance(partition, LimitedPartition):
            yield from _limited(options, shape, partition, rescue)
        # Spark makes a partition without a range when nothing is to be read.
    finally:
        rescue.close()


def _rows(
    options: ReadOptions, shape: TableShape, ranges: Iterable[RangePartition], rescue: Rescue
) -> Iterator[pa.RecordBatch]:
    for each in ranges:
        topic = TopicName.parse(each.topic)
        for batch in _read_range(options, shape, each):
            yield rescue.rows(topic, batch)


def _limited(
    options: ReadOptions, shape: TableShape, partition: LimitedPartition, rescue: Rescue
) -> Iterator[pa.RecordBatch]:
    """The same until there is enough. What lies behind the limit is not a dead letter: it is not read."""
    left = partition.limit
    for each in partition.ranges:
        topic = TopicName.parse(each.topic)
        for batch in _read_range(options, shape, each):
            at = 0
            while at < batch.num_rows:
                part = batch.slice(at, left)
                at += part.num_rows
                rows = rescue.rows(topic, part)
                yield rows
                left -= rows.num_rows
                if not left:
                    return


def _read_range(
    options: ReadOptions, shape: TableShape, partition: RangePartition
) -> Iterator[pa.RecordBatch]:
    """Yields the decoded columns, with broken values in their own column."""
    topic = TopicName.parse(partition.topic)
    connection = options.connection
    with Client(connection.service_url, connection.client, admin_url=connection.admin_url) as client:
        values = open_values(shape.value, definitions_of(client, topic)) if "value" in shape.decoded else None
        values = placed(values, topic, options, shape)
        decoder = Decoder(
            topic,
            shape.decoded,
            values=values,
            encrypted=options.encrypted,
            rows=shape.rows,
            pieces_before=LookBack(client, topic, strict=options.fail_on_data_loss),
        )
        columns = SegmentColumns(topic, shape.decoded, values, shape.rows)
        last = LastFile()
        for stretch in partition.stretches or (Stretch(partition.start, partition.end, None),):
            begin, stop = Position(*stretch.start), Position(*stretch.end)
            if stretch.file is not None:
                for found in read_stretch(topic, stretch, decoder, columns, last):
                    if isinstance(found, Position):
                        begin = found
                    else:
                        yield found
            if begin < stop:
                strict = options.fail_on_data_loss
                for entries in entries_from_broker(
                    client, topic, begin, stop, TopicDataLossError, strict=strict
                ):
                    yield from decoder.decode(entries)
