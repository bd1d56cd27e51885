"""Streaming reads: plans micro-batches on the driver, where one reader lives as long as the query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.spark.admission import Admission, Backlog
from magnetar.spark.bounds import Bounds
from magnetar.spark.cluster import Cluster
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.ledgers import LogState
from magnetar.spark.offsets import FROM_EARLIEST, Offset, decode_offsets, encode_offsets
from magnetar.spark.options import ReadOptions
from magnetar.spark.ranges import plan_ranges
from magnetar.spark.reading import read_partition


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics on and on. Offsets are those of `offsets`."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        # Both stay on the driver; tasks get a copy of the reader before they exist.
        self._cluster: Cluster | None = None
        self._states: dict[str, LogState] = {}
        self._target: dict[str, Position] | None = None
        """Where a query that reads what is available now stops; None for others."""

    # ------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        """Where a new query starts. Creates the subscription, if one is asked for."""
        states = self._refresh()
        cluster = self._connected()
        bounds = Bounds(cluster, self._options, int(time.time() * 1000))
        starts = bounds.starts(states, default="latest")
        found = {}
        for topic, start in starts.items():
            name = TopicName.parse(topic)
            found[topic] = cluster.with_start_index(name, states[topic], start)
            if self._options.subscription:
                cluster.client.acknowledge_up_to(name, self._options.subscription, None)
        return encode_offsets(found)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802  # Spark's name
        """Where the next micro-batch ends. Raises TopicDataLossError."""
        starts = decode_offsets(start)
        states = self._refresh()
        self._check_topics(starts, states)
        cluster = self._connected()
        bounds = Bounds(cluster, self._options, int(time.time() * 1000))
        backlogs = {}
        ends = dict(starts)
        for topic, state in states.items():
            begin = starts.get(topic, FROM_EARLIEST)
            if self._target is not None and topic not in self._target:
                continue
            name = TopicName.parse(topic)
            bounds.check_loss(name, state, begin)
            end = state.end if self._target is None else min(self._target[topic], state.end)
            ends[topic] = begin
            if end > begin.position and (state.ledgers or not state.is_complete):
                last = cluster.with_end_index(name, Offset(end, None))
                begin = cluster.with_start_index(name, state, begin)
                backlogs[topic] = Backlog(name, state, begin, last)
        self._admit(backlogs, limit)
        for topic, backlog in backlogs.items():
            if backlog.end.position > backlog.start.position:
                ends[topic] = backlog.end
        return encode_offsets(ends)

    def _admit(self, backlogs: Mapping[str, Backlog], limit: ReadLimit) -> None:
        if isinstance(limit, ReadAllAvailable) or not backlogs:
            return
        options = self._options
        admission = Admission(self._connected())
        if isinstance(limit, ReadMaxRows):
            self._connected().need_admin("maxRowsPerTrigger")
            admission.limit_rows(backlogs, limit.max_rows)
        # Spark carries one limit; the other is applied here.
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_per_trigger_max
        if bytes_max is not None:
            self._connected().need_admin("maxBytesPerTrigger")
            admission.limit_bytes(backlogs, bytes_max)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """The limit that the options ask for."""
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        """The end of every partition, for the query's progress."""
        cluster = self._connected()
        return encode_offsets(
            {
                topic: cluster.with_end_index(TopicName.parse(topic), Offset(state.end, None))
                for topic, state in self._refresh().items()
            }
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Fixes the end of the query at what is there now."""
        self._target = {topic: state.end for topic, state in self._refresh().items()}

    def _check_topics(self, starts: dict[str, Offset], states: Mapping[str, LogState]) -> None:
        gone = [topic for topic in starts if topic not in states]
        if gone and self._options.fail_on_data_loss:
            names = ", ".join(f"{topic} (read up to {starts[topic]})" for topic in gone)
            raise SparkSourceError(f"gone: {names}; set failOnDataLoss=false to go on without")
        for topic in gone:
            del starts[topic]

    # ------------------------------------------------------------ ranges

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Ranges of entries for the tasks of one micro-batch."""
        starts = decode_offsets(start)
        spans = {
            topic: (starts.get(topic, FROM_EARLIEST), stop)
            for topic, stop in decode_offsets(end).items()
            if stop.position > starts.get(topic, FROM_EARLIEST).position
        }
        if not spans:
            return []
        known_ends = {topic: state.end for topic, state in self._states.items()}
        if any(known_ends.get(topic, EARLIEST) < end.position for topic, (_, end) in spans.items()):
            # A batch that was planned before a restart.
            self._refresh()
            self._check_topics(starts, self._states)
        known = {topic: span for topic, span in spans.items() if topic in self._states}
        return plan_ranges(self._options, self._states, known)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return read_partition(self._options, self._columns, partition)

    # ------------------------------------------------------------ the subscription, the end

    def commit(self, end: dict[str, str]) -> None:
        """Moves the subscription's cursor behind what the query is done with."""
        subscription = self._options.subscription
        if not subscription:
            return
        client = self._connected().client
        for topic, offset in decode_offsets(end).items():
            ledger_id, entry_id = offset.position
            if entry_id > 0:
                client.acknowledge_up_to(
                    TopicName.parse(topic), subscription, Position(ledger_id, entry_id - 1)
                )

    def stop(self) -> None:
        """Closes the connection."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.connection)
        return self._cluster

    def _refresh(self) -> dict[str, LogState]:
        """The partitions there are now and their logs."""
        cluster = self._connected()
        topics = cluster.partitions(self._options.topics, self._options.pattern)
        self._states = {str(topic): cluster.log_state(topic) for topic in topics}
        return self._states
