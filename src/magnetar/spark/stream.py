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
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.spark.admission import Admission, Backlog
from magnetar.spark.bounds import Bounds
from magnetar.spark.cluster import Cluster
from magnetar.spark.errors import OptionError, SparkSourceError
from magnetar.spark.ledgers import LogState
from magnetar.spark.offsets import FROM_EARLIEST, Offset, decode_offsets, encode_offsets
from magnetar.spark.planning import TriggerDelay
from magnetar.spark.ranges import plan_ranges, tasks_of
from magnetar.spark.read_options import ReadOptions
from magnetar.spark.reading import read_partition
from magnetar.spark.spans import Span
from magnetar.spark.table_shape import TableShape


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics on and on. Offsets are those of `offsets`."""

    def __init__(self, options: ReadOptions, shape: TableShape) -> None:
        """Raises OptionError for options that only a batch can have."""
        self._options = options
        self._shape = shape
        # Both stay on the driver; tasks get a copy of the reader before they exist.
        self._cluster: Cluster | None = None
        self._states: dict[str, LogState] = {}
        self._target: dict[str, Position] | None = None
        """Where a query that reads what is available now stops; None for others."""
        self._kept: set[str] = set()
        """Partitions that are known to have the subscription."""
        self._delay: TriggerDelay | None = None
        if options.limit is not None:
            raise OptionError("limit is for batches; a stream has maxRowsPerTrigger")
        if options.ending_offsets or options.ending_timestamp or options.ranges is not None:
            raise OptionError(
                "a stream does not end: endingOffsets, endingTimestamp and ranges are for batches"
            )

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
            # What lies before the start is not the query's: it is no backlog, and nobody keeps it for it.
            self._keep(topic, start.position)
        return encode_offsets(found)

    def _keep(self, topic: str, start: Position | None = None) -> None:
        """Sees to it that the subscription keeps the partition, from `start` on if that is given."""
        subscription = self._options.subscription
        if not subscription or topic in self._kept:
            return
        read = None if start is None or start.entry_id <= 0 else Position(start.ledger_id, start.entry_id - 1)
        self._connected().client.acknowledge_up_to(TopicName.parse(topic), subscription, read)
        self._kept.add(topic)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802  # Spark's name
        """Where the next micro-batch ends. Raises TopicDataLossError."""
        starts = decode_offsets(start)
        states = self._refresh(missing_ok=bool(starts))
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
            self._keep(topic)
            bounds.check_loss(name, state, begin)
            end = state.end if self._target is None else min(self._target[topic], state.end)
            ends[topic] = begin
            if end > begin.position and (state.ledgers or not state.is_complete):
                last = cluster.with_end_index(name, Offset(end, None))
                begin = cluster.with_start_index(name, state, begin)
                backlogs[topic] = Backlog(name, state, begin, last)
        if self._holds_back(backlogs, limit):
            return start
        self._admit(backlogs, limit)
        for topic, backlog in backlogs.items():
            if backlog.end.position > backlog.start.position:
                ends[topic] = backlog.end
        return encode_offsets(ends)

    def _holds_back(self, backlogs: Mapping[str, Backlog], limit: ReadLimit) -> bool:
        """Whether there is too little for a trigger. Never where a query ends at what is there now."""
        rows_min = self._options.rows_per_trigger_min
        if rows_min is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now_ms = time.monotonic_ns() // 1_000_000
        if self._delay is None:
            self._delay = TriggerDelay(rows_min, self._options.trigger_delay_ms, now_ms)
        return self._delay.holds(sum(backlog.rows for backlog in backlogs.values()), now_ms)

    def _admit(self, backlogs: Mapping[str, Backlog], limit: ReadLimit) -> None:
        # Spark carries one limit, and says by this one that none counts; the others are applied here.
        if isinstance(limit, ReadAllAvailable) or not backlogs:
            return
        options = self._options
        admission = Admission(self._connected())
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else options.rows_per_trigger_max
        if rows_max is not None:
            self._connected().need_admin("maxRowsPerTrigger")
            admission.limit_rows(backlogs, rows_max)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_per_trigger_max
        if bytes_max is not None:
            self._connected().need_admin("maxBytesPerTrigger")
            admission.limit_bytes(backlogs, bytes_max)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """The limit that the options ask for."""
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.rows_per_trigger_min is not None:
            return ReadMinRows(options.rows_per_trigger_min)
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
            raise SparkSourceError(
                f"data loss: there is no {names} any more. It was deleted, by somebody or because nobody"
                " used it (the rule brokerDeleteInactiveTopics), or the options do not name it any more; set"
                " failOnDataLoss=false to go on without it"
            )
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
            self._refresh(missing_ok=True)
            self._check_topics(starts, self._states)
        known = [Span(topic, *span) for topic, span in spans.items() if topic in self._states]
        return tasks_of(self._options, plan_ranges(self._options, self._states, known))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return read_partition(self._options, self._shape, partition)

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

    def _refresh(self, *, missing_ok: bool = False) -> dict[str, LogState]:
        """The partitions there are now and their logs. Topics may be missing where others look for them."""
        cluster = self._connected()
        options = self._options
        topics = cluster.partitions(options.topics, options.pattern, options.namespace)
        patient = missing_ok or options.wait_for_topics or bool(self._states)
        self._states = cluster.log_states(topics, missing_ok=patient)
        return self._states
