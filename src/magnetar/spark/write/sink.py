"""The driver's part of the sink: adds each batch to its targets exactly once.

    1  read the newest record of the commit log; done with this batch: nothing to do
    2  write the manifest of the batch; if there is one already, that one counts
    3  copy the rows of the manifest to the targets, which drop duplicates
    4  write that the batch is done
    5  release the staged rows

A driver may die after any step. The batch then runs again, with other tasks in another order. Before step 2
no row was visible; from step 2 on the rows of the batch are fixed, and step 3 can be repeated. For two
drivers at the same time see `commit_log` and `publisher`. docs/internals/spark-sink.md describes each
failure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from magnetar.base.errors import ClientError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.retry import Retry
from magnetar.spark.errors import DeduplicationError, SparkSourceError
from magnetar.spark.sink_topics import SUBSCRIPTION, commits_topic, home_of, staging_topic
from magnetar.spark.targets import Targets, end_of
from magnetar.spark.write.commit_log import CommitLog, CommitManifest, Done, QueryRun, StagedTask
from magnetar.spark.write.deduplication import deduplicate
from magnetar.spark.write.publisher import Publisher
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry, blocks, decode_block
from magnetar.spark.write.staging import StagedReader, StagingWriter
from magnetar.wire import pulsar_pb2 as pb

_log = logging.getLogger("magnetar.spark.sink")

_INLINE_BYTES_MAX: Final = 2 << 20
"""Most bytes of rows in a manifest; the driver stages more. A message has up to 5 MiB by default."""
_TRIM_EVERY: Final = 50
"""Number of batches between two acknowledgements in the commit log, which is small."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The results of the tasks of a batch."""

    batch_id: int
    parts: Sequence[bytes | StagedTask]
    """Rows by task, in order."""
    rows: int = 0
    partitions: Sequence[str] = ()
    """Full names of the target partitions of the rows."""
    run_id: str = ""
    """Id of the start of the query; empty when unknown."""
    digest: int | None = None
    """Digest of the rows, independent of their order; None when unknown."""


class Sink:
    """A writer of targets; `sink_id` identifies it across restarts."""

    def __init__(
        self, client: Client, options: WriteOptions, sink_id: str, schema: pb.Schema | None = None
    ) -> None:
        self._client = client
        self._options = options
        self._sink_id = sink_id
        self._schema = schema
        home = home_of(options)
        self._staging = staging_topic(home, sink_id)
        self._commits = commits_topic(home, sink_id)
        self._log = CommitLog(client, self._commits, sink_id)

    def commit(self, batch: Batch) -> None:
        """Adds the batch to the targets. A repeated call has no effect.

        When a broker goes away, the call waits for it, up to the client's retry limit.
        Raises SparkSourceError when the sink has a later batch, or a later start of the query wrote to it.
        """
        retry = Retry(self._client.options.retry_timeout_s)
        while True:
            try:
                self._commit(batch)
                return
            except (ClientError, DeduplicationError) as error:
                # The second one: the admin interface of a broker that went away is away too.
                retry.pause_or_raise(error)
            finally:
                self._log.close()

    def _commit(self, batch: Batch) -> None:
        last = self._log.last()
        if last is None:
            if not batch.parts:
                return
            self._open_log()
            # Another driver may have been first; only a read by the current writer counts.
            last = self._log.last()
        run = QueryRun().of(batch.run_id)
        if last is not None:
            record = last[0]
            self._refuse(record, batch)
            run = record.run.of(batch.run_id)
            if isinstance(record, CommitManifest):
                self._finish(record, run, resume=True)
            if record.batch_id == batch.batch_id:
                self._compare(record, batch)
                return
        if not batch.parts:
            return
        self._open_log()
        manifest = self._manifest(batch, run)
        if self._log.append(manifest):
            self._finish(manifest, run, resume=False)
            return
        newest = self._log.last()
        if newest is None:
            raise SparkSourceError(
                f"{self._commits} has no record of batch {batch.batch_id}, but a duplicate of it"
            )
        self._refuse(newest[0], batch)
        if isinstance(newest[0], CommitManifest):
            self._finish(newest[0], run, resume=True)
        self._compare(newest[0], batch)

    def _refuse(self, record: CommitManifest | Done, batch: Batch) -> None:
        """Raises SparkSourceError when a later batch or a later start of the query has written."""
        if record.batch_id > batch.batch_id:
            raise SparkSourceError(
                f"{self._sink_id} is to write batch {batch.batch_id} and has written batch"
                f" {record.batch_id}: the checkpoint was set back to an earlier state, or another driver of"
                " the query is at work. Rows would be lost or repeated; go on with the newest checkpoint, or"
                " begin with a new one"
            )
        if batch.run_id in record.run.earlier:
            raise SparkSourceError(
                f"{self._sink_id} was started again and has written batch {record.batch_id} since: this is"
                " an earlier start of the query, or one over a copy of its checkpoint. Stop one of them; a"
                " copy needs a checkpoint of its own"
            )

    def _compare(self, record: CommitManifest | Done, batch: Batch) -> None:
        """Raises SparkSourceError when the batch has other rows than before and has to be deterministic."""
        differs = None not in (record.digest, batch.digest) and record.digest != batch.digest
        if record.rows == batch.rows and not differs:
            return
        had = f"{batch.rows} rows instead of {record.rows}"
        if record.rows == batch.rows:
            had = f"other rows, as many as before ({batch.rows})"
        if not self._options.deterministic:
            _log.warning(
                "batch %d of %s was run again and had %s: the rows of the first time count",
                batch.batch_id,
                self._sink_id,
                had,
            )
            return
        raise SparkSourceError(
            f"batch {batch.batch_id} of {self._sink_id} was written before, and now has {had}; the rows of"
            " the first time are in the topic, these would be lost. Either two writes have the same"
            " writeId and batchId: give each a writeId of its own. Or the checkpoint was set back: go on with"
            " the newest one, or begin with a new one. Or the query chooses rows by chance, by the clock, or"
            " adds up fractions in any order: set deterministic=false, and what came first counts"
        )

    def _open_log(self) -> None:
        """Opens the commit log for writing, with a subscription that keeps it and with deduplication."""
        if self._log.open() < 0:
            self._client.acknowledge_up_to(self._commits, SUBSCRIPTION, None)
            if self._options.enable_deduplication:
                deduplicate(self._client, self._commits)

    def _manifest(self, batch: Batch, run: QueryRun) -> CommitManifest:
        """The manifest of the batch, after rows that do not fit into the record are staged."""
        ends = {name: end_of(self._client, TopicName.parse(name)) for name in batch.partitions}
        parts = list(batch.parts)
        room = min(_INLINE_BYTES_MAX, self._log.message_bytes_max() // 2)
        if sum(len(part) for part in parts if isinstance(part, bytes)) > room:
            parts = self._staged(parts)
        return CommitManifest(batch.batch_id, tuple(parts), ends, batch.rows, run, batch.digest)

    def _staged(self, parts: Sequence[bytes | StagedTask]) -> list[bytes | StagedTask]:
        """The parts, after their inline rows are staged on the broker."""
        result: list[bytes | StagedTask] = []
        for inline, run in groupby(parts, key=lambda part: isinstance(part, bytes)):
            if not inline:
                result += run
                continue
            writer = StagingWriter(self._client, self._staging)
            try:
                entries = (entry for part in run if isinstance(part, bytes) for entry in decode_block(part))
                for block in blocks(entries):
                    writer.write(block)
                result.append(writer.finish())
            finally:
                writer.close()
        return result

    def _finish(self, manifest: CommitManifest, run: QueryRun, *, resume: bool) -> None:
        publisher = Publisher(
            self._client,
            Targets(self._client, self._options.topic),
            self._sink_id,
            manifest.batch_id,
            manifest.ends if resume else None,
            prepare=self._deduplicate if self._options.enable_deduplication else None,
            schema=self._schema,
        )
        try:
            publisher.publish(entries_of(self._client, self._staging, manifest.parts))
        finally:
            publisher.close()
        self._open_log()
        self._log.append(Done(manifest.batch_id, manifest.rows, run, manifest.digest))
        if manifest.staged:
            last = max(task.last for task in manifest.staged)
            self._client.acknowledge_up_to(self._staging, SUBSCRIPTION, last)
        if manifest.batch_id % _TRIM_EVERY == _TRIM_EVERY - 1:
            newest = self._log.last()
            if newest is not None and newest[1].entry_id > 0:
                before = Position(newest[1].ledger_id, newest[1].entry_id - 1)
                self._client.acknowledge_up_to(self._commits, SUBSCRIPTION, before)

    def _deduplicate(self, topic: TopicName) -> None:
        deduplicate(self._client, topic)


def entries_of(
    client: Client, staging: TopicName, parts: Sequence[bytes | StagedTask]
) -> Iterator[StagedEntry]:
    """The rows of a batch in the order of its tasks."""
    reader = StagedReader(client, staging, [part for part in parts if isinstance(part, StagedTask)])
    try:
        for part in parts:
            yield from decode_block(part) if isinstance(part, bytes) else reader.entries(part)
    finally:
        reader.close()
