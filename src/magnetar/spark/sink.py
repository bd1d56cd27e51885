"""The driver's half of the sink: makes a batch part of the target exactly once.

    1  read the newest record of the commit log; done with this batch or a later one: nothing to do
    2  write the manifest of the batch; if there is one already, that one counts
    3  copy what the manifest says into the target, duplicates being dropped
    4  write that the batch is done
    5  let go of what was staged

A driver may die after any step, and the batch be run again with other tasks in another order: up to step 2
nothing was visible, from step 2 on what the batch consists of cannot change any more, and step 3 can be
repeated. Two drivers at once: see `commit_log` and `publishing`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from typing import Final

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import AdminError, UnreachableError
from magnetar.client.producer import Producer
from magnetar.client.reader import last_position
from magnetar.spark.commit_log import CommitLog, Done, Manifest, StagedTask
from magnetar.spark.errors import OptionError, SparkSourceError
from magnetar.spark.options import WriteOptions
from magnetar.spark.publishing import Publisher
from magnetar.spark.sink_topics import SUBSCRIPTION, commits_topic, staging_topic
from magnetar.spark.staged import StagedEntry, decode_block
from magnetar.spark.staging import BLOCK_BYTES, StagingWriter, read_staged

_DEDUPLICATION_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_INLINE_BYTES_MAX: Final = 2 << 20
"""Rows that travel in a manifest; more are staged by the driver. A message holds 5 MiB by default."""
_TRIM_EVERY: Final = 50
"""Batches between two acknowledgements in the commit log, which is small."""


def target_partitions(client: Client, target: TopicName) -> dict[int, TopicName]:
    """The partitions of a topic by number; {-1: topic} for one without."""
    count = client.partitions(target) if target.partition < 0 else 0
    return {number: target.with_partition(number) for number in range(count)} or {-1: target}


class Sink:
    """One writer of one target; `sink_id` names it across restarts."""

    def __init__(self, client: Client, options: WriteOptions, sink_id: str) -> None:
        self._client = client
        self._options = options
        self._sink_id = sink_id
        self._target = TopicName.parse(options.topic)
        self._staging = staging_topic(self._target, sink_id)
        self._commits = commits_topic(self._target, sink_id)
        self._log = CommitLog(client, self._commits, sink_id)

    def commit(self, batch_id: int, inline: list[bytes], staged: list[StagedTask]) -> None:
        """Makes the batch part of the target; harmless when it is.

        Args:
            inline: blocks of the tasks that had few rows, in order.
            staged: the other tasks.
        """
        try:
            last = self._log.last()
            if last is None:
                self._prepare()
                # Another driver may have come first; only the writer's own look counts.
                self._log.open()
                last = self._log.last()
            record = None if last is None else last[0]
            if isinstance(record, Manifest) and record.batch_id <= batch_id:
                self._finish(record, resume=True)
            if record is not None and record.batch_id >= batch_id:
                return
            manifest = self._manifest(batch_id, inline, staged)
            if self._log.append(manifest):
                self._finish(manifest, resume=False)
                return
            newest = self._log.last()
            if newest is None:
                raise SparkSourceError(f"{self._commits} has no record of batch {batch_id}, but a duplicate")
            if isinstance(newest[0], Manifest):
                self._finish(newest[0], resume=True)
        finally:
            self._log.close()

    def _manifest(self, batch_id: int, inline: list[bytes], staged: list[StagedTask]) -> Manifest:
        """What the batch consists of. Rows that do not fit into the record are staged first."""
        partitions = target_partitions(self._client, self._target)
        ends = {str(topic): last_position(self._client, topic) for topic in partitions.values()}
        room = min(_INLINE_BYTES_MAX, self._log.message_bytes_max() // 2)
        if sum(map(len, inline)) <= room:
            return Manifest(batch_id, b"".join(inline), tuple(staged), ends)
        writer = StagingWriter(self._client, self._staging)
        try:
            for block in blocks(chain.from_iterable(map(decode_block, inline))):
                writer.write(block)
            return Manifest(batch_id, b"", (writer.finish(), *staged), ends)
        finally:
            writer.close()

    def _finish(self, manifest: Manifest, *, resume: bool) -> None:
        partitions = target_partitions(self._client, self._target)
        publisher = Publisher(
            self._client, partitions, self._sink_id, manifest.batch_id, manifest.ends if resume else None
        )
        try:
            staged = read_staged(self._client, self._staging, manifest.staged)
            publisher.publish(chain(decode_block(manifest.inline), staged))
        finally:
            publisher.close()
        self._log.append(Done(manifest.batch_id))
        if manifest.staged:
            last = max(task.last for task in manifest.staged)
            self._client.acknowledge_up_to(self._staging, SUBSCRIPTION, last)
        if manifest.batch_id % _TRIM_EVERY == _TRIM_EVERY - 1:
            newest = self._log.last()
            if newest is not None and newest[1].entry_id > 0:
                before = Position(newest[1].ledger_id, newest[1].entry_id - 1)
                self._client.acknowledge_up_to(self._commits, SUBSCRIPTION, before)

    def _prepare(self) -> None:
        """Before the first batch: the log is kept, and neither it nor the target takes duplicates."""
        self._client.acknowledge_up_to(self._commits, SUBSCRIPTION, None)
        if not self._options.enable_deduplication:
            return
        deduplicate(self._client, self._commits)
        deduplicate(self._client, self._target)


def deduplicate(client: Client, target: TopicName) -> None:
    """Has the topic drop duplicates; returns when it does.

    Raises OptionError when that cannot be done: exactly once would be an empty promise.
    """
    partitions = target_partitions(client, target).values()
    for topic in partitions:
        # A topic has to be there before it can have a policy.
        Producer(client, topic).close()
    deadline = time.monotonic() + _DEDUPLICATION_TIMEOUT_S
    try:
        waiting = [topic for topic in partitions if not _drops_duplicates(client, topic)]
        if waiting:
            client.admin.enable_deduplication(target)
        while waiting:
            waiting = [topic for topic in waiting if not _drops_duplicates(client, topic)]
            if waiting and time.monotonic() > deadline:
                raise OptionError(
                    f"deduplication of {waiting[0]} did not start; enable it for the namespace, or set"
                    " delivery=at_least_once"
                )
            time.sleep(_POLL_S if waiting else 0.0)
    except (AdminError, UnreachableError) as error:
        raise OptionError(
            f"writing exactly once needs deduplication on {target}, and the admin interface does not help:"
            f" {error}. Give admin.url, or enable deduplication for the namespace and set"
            " enableDeduplication=false, or set delivery=at_least_once"
        ) from error


def _drops_duplicates(client: Client, topic: TopicName) -> bool:
    return client.admin.stats(topic).get("deduplicationStatus") == "Enabled"


def blocks(entries: Iterable[StagedEntry]) -> Iterable[bytes]:
    """Staged entries gathered into blocks of about BLOCK_BYTES."""
    parts: list[bytes] = []
    size = 0
    for staged in entries:
        part = staged.encode()
        if parts and size + len(part) > BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield b"".join(parts)
