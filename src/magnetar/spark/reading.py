"""What executors do: read one range of entries, give Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from magnetar.arrow.decode import Decoder
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.reader import peek, read_range
from magnetar.spark.errors import TopicDataLossError
from magnetar.spark.options import ReadOptions

_BYTES_PER_BATCH = 2 << 20
"""Entries decoded at a time: large enough for array operations, small enough for the processor's cache and
for Spark's memory."""

_PEEK_TIMEOUT_S = 10.0


@dataclass(eq=False)
class RangePartition(InputPartition):
    """One task's range of one partition of a topic."""

    topic: str
    start: tuple[int, int]
    """First entry, as ledger and entry."""
    end: tuple[int, int]
    """One behind the last entry, which exists."""
    rows: int | None
    """Messages, as estimated when it was planned."""

    def __repr__(self) -> str:
        return f"RangePartition({self.topic} {self.start[0]}:{self.start[1]}..{self.end[0]}:{self.end[1]})"


def read_partition(
    options: ReadOptions, columns: tuple[str, ...], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The messages of the range. Raises TopicDataLossError when its beginning is gone."""
    # Spark makes a partition without a range when there is nothing to read.
    if not isinstance(partition, RangePartition):
        return
    topic = TopicName.parse(partition.topic)
    start, end = Position(*partition.start), Position(*partition.end)
    connection = options.connection
    decoder = Decoder(topic, columns, text=options.value_format == "string")
    with Client(connection.service_url, connection.client, admin_url=connection.admin_url) as client:
        expected: Position | None = start
        for entries in read_range(client, topic, start, end, bytes_target=_BYTES_PER_BATCH):
            if expected is not None and options.fail_on_data_loss and start > EARLIEST:
                _check_beginning(client, topic, expected, entries.position(0))
            expected = None
            yield from decoder.decode(entries)
        if expected is not None and options.fail_on_data_loss and start > EARLIEST:
            _check_beginning(client, topic, expected, end)


def _check_beginning(client: Client, topic: TopicName, start: Position, delivered: Position) -> None:
    """Raises TopicDataLossError when the range begins later than planned because entries were removed.

    Entries that no consumer gets, such as markers, leave gaps too; then the topic begins before the gap.
    """
    if delivered <= start:
        return
    first = peek(client, topic, EARLIEST, _PEEK_TIMEOUT_S)
    if not len(first) or first.position(0) > start:
        raise TopicDataLossError(str(topic), str(start), str(delivered))
