"""Writers that Spark runs: `write` in tasks, `commit` on the driver.

A task packs its rows into entries and either returns them in its commit message, when they are few, or leaves
them in the staging topic. Nothing reaches the target before the driver knows which tasks count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import OptionError, SparkSourceError
from magnetar.spark.sink_topics import SUBSCRIPTION, home_of, staging_topic
from magnetar.spark.targets import Targets
from magnetar.spark.write.commit_log import StagedTask
from magnetar.spark.write.direct import publish_directly
from magnetar.spark.write.publisher import Publisher
from magnetar.spark.write.routing import Router
from magnetar.spark.write.sink import Batch, Sink, entries_of
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry, blocks
from magnetar.spark.write.staging import StagingWriter
from magnetar.spark.write.written_columns import WrittenColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_DESCRIPTION: Final = "spark.job.description"
_RUN_ID: Final = re.compile(r"\brunId = ([0-9a-f-]{36})\b")
"""Finds the id of the query's start, which Spark gives to tasks only in the job's description."""


@dataclass
class RowsWritten(WriterCommitMessage):
    """The result of a task."""

    sink_id: str
    batch_id: int
    part: bytes | StagedTask
    """A block of staged entries, or the place of staged rows. Empty when the task had no rows or wrote
    them."""
    rows: int
    partitions: list[str]
    """Full names of the target partitions of the rows."""
    run_id: str = ""
    digest: int = 0
    """Digest of the rows, independent of their order."""


class _TopicWriter:
    """The common part of batch and stream writers."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        self._columns = WrittenColumns(options, schema)
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write in the mode append or update")
        self._options = options

    def _client(self) -> Client:
        connection = self._options.connection
        return Client(connection.service_url, connection.client, admin_url=connection.admin_url)

    def _write(
        self,
        sink_id: str,
        batch_id: int,
        rows: Iterator[pa.RecordBatch],
        *,
        staging: TopicName,
        subscription: str = SUBSCRIPTION,
        run_id: str = "",
    ) -> RowsWritten:
        context = TaskContext.get()
        with self._client() as client:
            first_partition = 0 if context is None else context.partitionId()
            router = Router(client, self._options, self._columns, first_partition)
            entries = router.entries(rows)
            part: bytes | StagedTask = b""
            if self._options.delivery == "at_least_once":
                publish_directly(client, router.targets, entries, self._columns.schema)
            else:
                part = self._stage(client, staging, subscription, entries)
            return RowsWritten(sink_id, batch_id, part, router.rows, router.partitions, run_id, router.digest)

    def _stage(
        self, client: Client, topic: TopicName, subscription: str, entries: Iterator[StagedEntry]
    ) -> bytes | StagedTask:
        """Returns the rows for the commit message, or stages them when they exceed the limit."""
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
                    writer = StagingWriter(client, topic, subscription)
                    for earlier in held:
                        writer.write(earlier)
                    held.clear()
                writer.write(block)
            return b"".join(held) if writer is None else writer.finish()
        finally:
            if writer is not None:
                writer.close()


def _batch(batch_id: int, messages: Sequence[WriterCommitMessage | None]) -> Batch | None:
    """The results of all tasks of a batch; None for a batch without tasks."""
    written = [message for message in messages if isinstance(message, RowsWritten)]
    if not written:
        return None
    names = {(message.sink_id, message.batch_id) for message in written}
    if names != {(written[0].sink_id, batch_id)}:
        raise SparkSourceError(f"messages of other batches among those of batch {batch_id}: {names}")
    return Batch(
        batch_id,
        [message.part for message in written if message.part],
        sum(message.rows for message in written),
        sorted({name for message in written for name in message.partitions}),
        written[0].run_id,
        sum(message.digest for message in written) % (1 << 64),
    )


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query to topics.

    The query's id, which its checkpoint keeps, is the id of the sink.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        if options.write_id:
            # With a writeId, batches of a new checkpoint would be taken for old ones.
            raise OptionError("writeId is for batch writes; a streaming query is known by its checkpoint")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """One task's rows. Raises OptionError, SparkSourceError, ClientError."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if context is None or not query_id or batch_id is None:
            raise SparkSourceError(
                "this Spark does not tell tasks the query and the batch; set delivery=at_least_once"
            )
        run = _RUN_ID.search(context.getLocalProperty(_DESCRIPTION) or "")
        staging = staging_topic(home_of(self._options), query_id)
        run_id = run[1] if run else ""
        return self._write(query_id, int(batch_id), iterator, staging=staging, run_id=run_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Makes the batch visible exactly once, also when it is called again."""
        if self._options.delivery == "at_least_once":
            return
        batch = _batch(batchId, messages)
        if batch is None:
            return
        sink_id = next(message.sink_id for message in messages if isinstance(message, RowsWritten))
        with self._client() as client:
            Sink(client, self._options, sink_id, self._columns.schema).commit(batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Does nothing: rows of the batch are not visible, and the next commit releases staged rows."""


class TopicBatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes a DataFrame to topics.

    Retried tasks make no duplicates. A driver that dies while it copies leaves a part of the rows in the
    topic. With the option `writeId`, a repeated write completes it.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._sink_id = options.write_id or f"batch-{uuid4().hex}"
        # Writes without a name share a staging topic, where each keeps its rows by its own subscription.
        self._staging = staging_topic(home_of(options), options.write_id or "batch")
        self._subscription = SUBSCRIPTION if options.write_id else self._sink_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """One task's rows. Raises OptionError, SparkSourceError, ClientError."""
        return self._write(
            self._sink_id,
            self._options.batch_id,
            iterator,
            staging=self._staging,
            subscription=self._subscription,
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the rows visible."""
        if self._options.delivery == "at_least_once":
            return
        batch = _batch(self._options.batch_id, messages)
        if batch is None:
            return
        with self._client() as client:
            if self._options.write_id:
                Sink(client, self._options, self._sink_id, self._columns.schema).commit(batch)
            else:
                self._copy(client, batch.parts)

    def _copy(self, client: Client, parts: Sequence[bytes | StagedTask]) -> None:
        """Copies the rows to the target without a commit log, as a write without a name cannot be resumed."""
        targets = Targets(client, self._options.topic)
        publisher = Publisher(client, targets, self._sink_id, 0, None, schema=self._columns.schema)
        try:
            publisher.publish(entries_of(client, self._staging, parts))
        finally:
            publisher.close()
        self._release(client, parts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Gives the write up, and releases its staged rows, which were never visible."""
        if self._options.delivery == "exactly_once" and not self._options.write_id:
            written = [message.part for message in messages if isinstance(message, RowsWritten)]
            with self._client() as client:
                self._release(client, written)

    def _release(self, client: Client, parts: Sequence[bytes | StagedTask]) -> None:
        if any(isinstance(part, StagedTask) for part in parts):
            client.unsubscribe(self._staging, self._subscription)
