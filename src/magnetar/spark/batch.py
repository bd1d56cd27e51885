"""Batch reads: where the topics begin and end is fixed when the query is planned."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from magnetar.base.names import TopicName
from magnetar.spark.bounds import Bounds
from magnetar.spark.cluster import Cluster
from magnetar.spark.offsets import Offset
from magnetar.spark.options import ReadOptions
from magnetar.spark.ranges import plan_ranges
from magnetar.spark.reading import read_partition


class TopicBatchReader(DataSourceReader):
    """Reads topics between two points."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Ranges of entries for the tasks. Raises OptionError, TopicDataLossError, ClientError."""
        options = self._options
        cluster = Cluster(options.connection)
        try:
            topics = cluster.partitions(options.topics, options.pattern)
            states = {str(topic): cluster.log_state(topic) for topic in topics}
            bounds = Bounds(cluster, options, int(time.time() * 1000))
            starts = bounds.starts(states, default="earliest")
            ends = bounds.ends(states)
            spans: dict[str, tuple[Offset, Offset]] = {
                topic: (starts[topic], ends[topic])
                for topic in states
                if starts[topic].position < ends[topic].position
            }
            for topic, (start, end) in spans.items():
                name = TopicName.parse(topic)
                bounds.check_loss(name, states[topic], start)
                if options.rows_per_partition_max is not None:
                    # To split by rows they have to be counted.
                    counted = cluster.with_start_index(name, states[topic], start)
                    spans[topic] = counted, cluster.with_end_index(name, end)
            return list(plan_ranges(options, states, spans))
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return read_partition(self._options, self._columns, partition)
