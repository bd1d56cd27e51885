"""Streaming reads: plans micro-batches on the driver, where one reader lives as long as the query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.errors import RefusedError
from magnetar.spark.cluster import SparkCluster
from magnetar.spark.errors import OptionError, SparkSourceError
from magnetar.spark.read.admission import Backlog, ReadAdmission
from magnetar.spark.read.bounds import ReadBounds
from magnetar.spark.read.losses import beginning, present
from magnetar.spark.read.offsets import FROM_EARLIEST, Offset, decode_offsets, encode_offsets
from magnetar.spark.read.planning import TriggerDelay
from magnetar.spark.read.range_reading import read_partition
from magnetar.spark.read.ranges import plan_ranges, tasks_of
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.spans import ReadSpan
from magnetar.spark.read.table_shape import TableShape
from magnetar.tables.ledgers import KnownLog
from magnetar.wire import pulsar_pb2 as pb

_LOOKS_MAX: Final = 4
"""Most attempts to plan one trigger while topics are being deleted."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics continuously. Offsets have the form of module `offsets`."""

    def __init__(self, options: ReadOptions, shape: TableShape) -> None:
        """Raises OptionError for options that are valid only for batches."""
        self._options = options
        self._shape = shape
        # Both stay on the driver: tasks get a copy of the reader that is made before they exist.
        self._cluster: SparkCluster | None = None
        self._states: dict[str, KnownLog] = {}
        self._target: dict[str, Position] | None = None
        """The end of a query with trigger availableNow; None for other triggers."""
        self._kept: set[str] = set()
        """Partitions whose subscription is known to exist."""
        self._delay: TriggerDelay | None = None
        if options.limit is not None:
            raise OptionError("limit is for batches; a stream has maxRowsPerTrigger")
        if options.ending_offsets or options.ending_timestamp or options.ranges is not None:
            raise OptionError(
                "a stream does not end: endingOffsets, endingTimestamp and ranges are for batches"
            )

    # ------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        """The start of a new query. Creates the subscription when the options name one."""
        states = self._refresh(missing_ok=self._options.wait_for_topics)
        cluster = self._connected()
        bounds = ReadBounds(cluster, self._options, int(time.time() * 1000))
        starts = bounds.starts(states, default="latest")
        found = {}
        for topic, start in starts.items():
            name = TopicName.parse(topic)
            start = bounds.after_loss(name, states[topic], start, is_named=True)
            found[topic] = cluster.with_start_index(name, states[topic], start)
            # Entries before the start are not the query's: they do not count as backlog, and are not kept for
            # it.
            self._keep(topic, start.position)
        return encode_offsets(found)

    def _keep(self, topic: str, start: Position | None = None) -> None:
        """Ensures that the partition has the subscription, with its cursor at `start` when that is given."""
        subscription = self._options.subscription
        if not subscription or topic in self._kept:
            return
        read = None if start is None or start.entry_id <= 0 else Position(start.ledger_id, start.entry_id - 1)
        client = self._connected().client
        client.acknowledge_up_to(TopicName.parse(topic), subscription, read, create_topic=False)
        self._kept.add(topic)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802  #
        # Spark's name
        """The end of the next micro-batch. Raises SparkSourceError after a loss that the options do not
        allow."""
        for _ in range(_LOOKS_MAX - 1):
            with _a_topic_may_go():
                return self._planned(start, limit)
        return self._planned(start, limit)

    def _planned(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """As `latestOffset`. Raises RefusedError when a topic is deleted during the call: then plan again."""
        starts = decode_offsets(start)
        states = self._refresh()
        self._check_topics(starts, states)
        cluster = self._connected()
        bounds = ReadBounds(cluster, self._options, int(time.time() * 1000))
        backlogs = {}
        ends = dict(starts)
        for topic, state in states.items():
            begin = starts.get(topic, FROM_EARLIEST)
            if self._target is not None and topic not in self._target:
                continue
            name = TopicName.parse(topic)
            self._keep(topic)
            begin = bounds.after_loss(name, state, begin)
            end = state.end if self._target is None else min(self._target[topic], state.end)
            ends[topic] = begin
            if end > begin.position and (state.ledgers or not state.is_complete):
                last = cluster.with_end_index(name, state, Offset(end, None))
                begin = cluster.with_start_index(name, state, begin)
                backlogs[topic] = Backlog(name, state, begin, last)
        if not self._let_through(backlogs, limit):
            return start
        self._admit(backlogs, limit)
        for topic, backlog in backlogs.items():
            if backlog.end.position > backlog.start.position:
                ends[topic] = backlog.end
        return encode_offsets(ends)

    def _let_through(self, backlogs: Mapping[str, Backlog], limit: ReadLimit) -> bool:
        """Begins a trigger and returns True, or returns False when too few rows are unread.

        For a query with trigger availableNow, the result is always True.
        """
        rows_min = self._options.rows_per_trigger_min
        if rows_min is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return True
        now_ms = time.monotonic_ns() // 1_000_000
        if self._delay is None:
            self._delay = TriggerDelay(rows_min, self._options.trigger_delay_ms, now_ms)
        rows = sum(backlog.rows for backlog in backlogs.values())
        if self._delay.holds(rows, now_ms):
            return False
        if rows:
            self._delay.let_through(now_ms)
        return True

    def _admit(self, backlogs: Mapping[str, Backlog], limit: ReadLimit) -> None:
        # Spark passes one limit, and this one means no limit; the other limits are applied here.
        if isinstance(limit, ReadAllAvailable) or not backlogs:
            return
        options = self._options
        admission = ReadAdmission(self._connected())
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else options.rows_per_trigger_max
        if rows_max is not None:
            self._connected().need_admin("maxRowsPerTrigger")
            admission.limit_rows(backlogs, rows_max)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_per_trigger_max
        if bytes_max is not None:
            self._connected().need_admin("maxBytesPerTrigger")
            admission.limit_bytes(backlogs, bytes_max)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """The limit of the options."""
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.rows_per_trigger_min is not None:
            return ReadMinRows(options.rows_per_trigger_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        """The end of each partition, for the progress of the query."""
        cluster = self._connected()
        ends = {}
        for topic, state in self._refresh().items():
            with _a_topic_may_go():
                # For an empty partition, the end is the same as the start.
                empty = state.is_complete and not state.ledgers
                end = beginning(state) if empty else Offset(state.end, None)
                ends[topic] = cluster.with_end_index(TopicName.parse(topic), state, end)
        return encode_offsets(ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Fixes the end of the query at the current ends. A deleted topic is reported by the next trigger."""
        self._target = {topic: state.end for topic, state in self._refresh().items()}

    def _check_topics(self, starts: dict[str, Offset], states: Mapping[str, KnownLog]) -> None:
        gone = [topic for topic in starts if topic not in states]
        if gone and self._options.fail_on_data_loss:
            names = ", ".join(f"{topic} (read up to {starts[topic]})" for topic in gone)
            raise SparkSourceError(
                f"data loss: there is no {names} any more. It was deleted, explicitly or because it was "
                f"unused (the rule brokerDeleteInactiveTopics), or the options do not name it any more; set"
                " failOnDataLoss=false to go on without it"
            )
        for topic in gone:
            del starts[topic]

    # ------------------------------------------------------------ ranges

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The ranges of entries for the tasks of one micro-batch."""
        starts = decode_offsets(start)
        spans = {}
        for topic, stop in decode_offsets(end).items():
            begin = starts.get(topic, FROM_EARLIEST)
            if begin.position.ledger_id > stop.position.ledger_id:
                # A new topic of the same name, with lower ledger numbers: all of it is read.
                begin = FROM_EARLIEST
            if stop.position > begin.position:
                spans[topic] = (begin, stop)
        if not spans:
            return []
        known_ends = {topic: state.end for topic, state in self._states.items()}
        if any(known_ends.get(topic, EARLIEST) < end.position for topic, (_, end) in spans.items()):
            # The batch was planned before a restart.
            self._refresh()
            self._check_topics(starts, self._states)
        bounds = ReadBounds(self._connected(), self._options, int(time.time() * 1000))
        known = []
        for topic, (begin, stop) in spans.items():
            if (state := self._states.get(topic)) is not None:
                begin = present(state, bounds.after_loss(TopicName.parse(topic), state, begin))
                if stop.position > begin.position:
                    known.append(ReadSpan(topic, begin, stop))
        return tasks_of(self._options, plan_ranges(self._options, self._states, known))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return read_partition(self._options, self._shape, partition)

    # ------------------------------------------------------------ the subscription, the end

    def commit(self, end: dict[str, str]) -> None:
        """Moves the cursor of the subscription to `end`, up to which the query has finished."""
        subscription = self._options.subscription
        if not subscription:
            return
        client = self._connected().client
        for topic, offset in decode_offsets(end).items():
            ledger_id, entry_id = offset.position
            if entry_id > 0:
                name, last = TopicName.parse(topic), Position(ledger_id, entry_id - 1)
                with _a_topic_may_go():
                    # A topic that was deleted stays deleted.
                    client.acknowledge_up_to(name, subscription, last, create_topic=False)

    def stop(self) -> None:
        """Closes the connection."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> SparkCluster:
        if self._cluster is None:
            self._cluster = SparkCluster(self._options.connection)
        return self._cluster

    def _refresh(self, *, missing_ok: bool = True) -> dict[str, KnownLog]:
        """The existing partitions with their logs.

        Missing topics are left out; `_check_topics` decides whether that is allowed. For a new query, which
        has read none of them, a missing topic raises RefusedError.
        """
        cluster = self._connected()
        options = self._options
        topics = cluster.partitions(options.topics, options.pattern, options.namespace)
        self._states = cluster.log_states(topics, missing_ok=missing_ok)
        return self._states


@contextmanager
def _a_topic_may_go() -> Iterator[None]:
    """Suppresses the error of a body whose topic was deleted."""
    try:
        yield
    except RefusedError as error:
        if error.code != pb.ServerError.TopicNotFound:
            raise
