"""Turns the rows of a task into entries of their topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.client.client import Client
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.targets import Targets, topic_of
from magnetar.spark.write.encode import RowEncoder
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry

if TYPE_CHECKING:
    from magnetar.spark.write.written_columns import WrittenColumns


class Router:
    """Packs rows into entries, separately for each topic; keeps their count, digest and partitions."""

    def __init__(
        self, client: Client, options: WriteOptions, columns: WrittenColumns, first_partition: int
    ) -> None:
        self._client = client
        self._options = options
        self._columns = columns
        self._first_partition = first_partition
        self.targets = Targets(client, options.topic)
        self._encoders: dict[str, RowEncoder] = {}
        self.rows = 0
        """Count of rows so far."""
        self._places: set[tuple[str, int]] = set()

    def entries(self, batches: Iterator[pa.RecordBatch]) -> Iterator[StagedEntry]:
        """Yields full entries, and at the end the rest. Raises SparkSourceError, ClientError."""
        for rows in batches:
            self.rows += rows.num_rows
            if rows.num_rows:
                yield from self._routed(self._columns.with_bytes(rows))
        for topic, encoder in self._encoders.items():
            yield from self._noted(topic, encoder.finish())

    @property
    def digest(self) -> int:
        """Digest of the rows so far and their topics, independent of the order; 64 bits."""
        return sum(each.digest * (crc32(topic.encode()) | 1) for topic, each in self._encoders.items()) % (
            1 << 64
        )

    @property
    def partitions(self) -> list[str]:
        """Full names of the target partitions of the entries so far."""
        return sorted(str(self.targets.partition(*place)) for place in self._places)

    def _routed(self, rows: pa.RecordBatch) -> Iterator[StagedEntry]:
        if self._options.topic:
            yield from self._noted("", self._encoder("").encode(rows))
            return
        topics = rows.column(rows.schema.names.index("topic"))
        if topics.null_count:
            raise SparkSourceError("column topic: a row has none; filter such rows, or set the option topic")
        names = pc.unique(topics)
        for text in names.to_pylist():
            chosen = rows if len(names) == 1 else rows.filter(pc.equal(topics, text))
            topic = topic_of(text)
            yield from self._noted(topic, self._encoder(topic).encode(chosen))

    def _noted(self, topic: str, entries: Iterator[StagedEntry]) -> Iterator[StagedEntry]:
        for staged in entries:
            self._places.add((topic, staged.partition))
            yield staged._replace(topic=topic) if topic else staged

    def _encoder(self, topic: str) -> RowEncoder:
        encoder = self._encoders.get(topic)
        if encoder is None:
            options = self._options
            partitions = self.targets.partitions(topic)
            schema = self._columns.schema
            version = b""
            if schema is not None:
                version = self._client.register_schema(min(partitions.items())[1], schema)
            encoder = self._encoders[topic] = RowEncoder(
                0 if -1 in partitions else len(partitions),
                batching=options.batching,
                rows_max=options.rows_per_entry_max,
                bytes_max=options.bytes_per_entry_max,
                compression=options.compression,
                schema_version=version,
                first_partition=self._first_partition,
            )
        return encoder
