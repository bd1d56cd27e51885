"""Writers that Spark runs: `write` in tasks, `commit` on the driver.

A task packs its rows into entries and either returns them in its commit message, when they are few, or leaves
them in the staging topic. Nothing reaches the target before the driver knows which tasks count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.commit_log import StagedTask
from magnetar.spark.direct import publish_directly
from magnetar.spark.encode import EntryEncoder
from magnetar.spark.errors import OptionError, SparkSourceError
from magnetar.spark.options import WriteOptions
from magnetar.spark.publishing import Publisher
from magnetar.spark.sink import Sink, blocks, target_partitions
from magnetar.spark.sink_topics import staging_topic
from magnetar.spark.staged import StagedEntry, decode_block
from magnetar.spark.staging import StagingWriter, read_staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WRITE_COLUMNS: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "key_is_string": ("boolean",),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
    "ordering_key": ("binary", "string"),
}
"""Columns that can be written, with their types. Only `value` has to be there."""

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class RowsWritten(WriterCommitMessage):
    """What a task did."""

    sink_id: str
    batch_id: int
    inline: bytes
    """A block of staged entries; empty when the task staged them on the broker, or wrote them."""
    staged: StagedTask | None


def check_schema(schema: StructType) -> None:
    """Raises OptionError for columns that a topic cannot take."""
    for field in schema.fields:
        kinds = WRITE_COLUMNS.get(field.name, ())
        if field.dataType.simpleString() not in kinds:
            offer = ", ".join(f"{name} {' or '.join(types)}" for name, types in WRITE_COLUMNS.items())
            raise OptionError(
                f"column `{field.name} {field.dataType.simpleString()}` cannot be written; select from"
                f" {offer}, for example with selectExpr('to_json(struct(*)) AS value')"
            )
    if "value" not in schema.fieldNames():
        raise OptionError(f"a column `value` is needed, there are {', '.join(schema.fieldNames())}")


class _TopicWriter:
    """What batch and stream have in common."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        check_schema(schema)
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write in the mode append or update")
        self._options = options

    def _client(self) -> Client:
        connection = self._options.connection
        return Client(connection.service_url, connection.client, admin_url=connection.admin_url)

    def _write(self, sink_id: str, batch_id: int, rows: Iterator[pa.RecordBatch]) -> RowsWritten:
        options = self._options
        target = TopicName.parse(options.topic)
        context = TaskContext.get()
        with self._client() as client:
            partitions = target_partitions(client, target)
            encoder = EntryEncoder(
                0 if -1 in partitions else len(partitions),
                batching=options.batching,
                rows_max=options.rows_per_entry_max,
                bytes_max=options.bytes_per_entry_max,
                compression=options.compression,
                first_partition=0 if context is None else context.partitionId(),
            )
            entries = _entries(encoder, rows)
            if options.delivery == "at_least_once":
                publish_directly(client, partitions, entries)
                return RowsWritten(sink_id, batch_id, b"", None)
            return self._stage(client, staging_topic(target, sink_id), sink_id, batch_id, entries)

    def _stage(
        self, client: Client, topic: TopicName, sink_id: str, batch_id: int, entries: Iterator[StagedEntry]
    ) -> RowsWritten:
        """Keeps the rows in the message, or from the limit on in the staging topic."""
        held: list[bytes] = []
        size = 0
        writer: StagingWriter | None = None
        try:
            for block in blocks(entries):
                if writer is None and size + len(block) <= self._options.inline_bytes_max:
                    held.append(block)
                    size += len(block)
                    continue
                if writer is None:
                    writer = StagingWriter(client, topic)
                    for earlier in held:
                        writer.write(earlier)
                    held.clear()
                writer.write(block)
            staged = None if writer is None else writer.finish()
            return RowsWritten(sink_id, batch_id, b"".join(held), staged)
        finally:
            if writer is not None:
                writer.close()


def _entries(encoder: EntryEncoder, rows: Iterator[pa.RecordBatch]) -> Iterator[StagedEntry]:
    for batch in rows:
        yield from encoder.encode(batch)
    yield from encoder.finish()


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[RowsWritten]:
    return [message for message in messages if isinstance(message, RowsWritten)]


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query to a topic.

    The query's id, which its checkpoint keeps, names the sink.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        if options.write_id:
            # Batches of a new checkpoint would be taken for old ones.
            raise OptionError("writeId is for batch writes; a streaming query is known by its checkpoint")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """One task's rows. Raises OptionError, SparkSourceError, ClientError."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if not query_id or batch_id is None:
            raise SparkSourceError(
                "this Spark does not tell tasks the query and the batch; set delivery=at_least_once"
            )
        return self._write(query_id, int(batch_id), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Makes the batch visible, once however often it is called."""
        written = _written(messages)
        if not written or self._options.delivery == "at_least_once":
            return
        names = {(message.sink_id, message.batch_id) for message in written}
        if names != {(written[0].sink_id, batchId)}:
            raise SparkSourceError(f"messages of other batches among those of batch {batchId}: {names}")
        with self._client() as client:
            Sink(client, self._options, written[0].sink_id).commit(
                batchId,
                [message.inline for message in written if message.inline],
                [message.staged for message in written if message.staged is not None],
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Nothing of the batch is visible; what was staged goes with the next commit."""


class TopicBatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes a DataFrame to a topic.

    Retried tasks make no duplicates. A driver that dies while it copies leaves a part; with the option
    `writeId` the write can be run again and is completed.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._sink_id = options.write_id or f"batch-{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """One task's rows. Raises OptionError, SparkSourceError, ClientError."""
        return self._write(self._staging_id(), 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the rows visible."""
        written = _written(messages)
        if not written or self._options.delivery == "at_least_once":
            return
        inline = [message.inline for message in written if message.inline]
        staged = [message.staged for message in written if message.staged is not None]
        with self._client() as client:
            if self._options.write_id:
                Sink(client, self._options, self._options.write_id).commit(0, inline, staged)
            else:
                self._copy(client, inline, staged)

    def _copy(self, client: Client, inline: list[bytes], staged: list[StagedTask]) -> None:
        """Without a name that survives this driver there is nobody to resume for, and no log to keep."""
        target = TopicName.parse(self._options.topic)
        publisher = Publisher(client, target_partitions(client, target), self._sink_id, 0, None)
        try:
            for block in inline:
                publisher.publish(decode_block(block))
            publisher.publish(read_staged(client, staging_topic(target, self._staging_id()), staged))
        finally:
            publisher.close()

    def _staging_id(self) -> str:
        """Batch writes without a name share a staging topic."""
        return self._options.write_id or "batch"

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is visible."""
