"""Batch reads: the begin and end of each topic are fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from magnetar.spark.cluster import SparkCluster
from magnetar.spark.read.filters import Pushed
from magnetar.spark.read.range_reading import LimitedPartition, read_partition
from magnetar.spark.read.ranges import plan_ranges, tasks_of
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.spans import find_spans
from magnetar.spark.read.table_shape import TableShape


class TopicBatchReader(DataSourceReader):
    """Reads topics between two points."""

    def __init__(self, options: ReadOptions, shape: TableShape) -> None:
        self._options = options
        self._shape = shape
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Ranges of entries for the tasks. Raises OptionError, TopicDataLossError, ClientError."""
        options = self._options
        cluster = SparkCluster(options.connection)
        try:
            states, spans = find_spans(cluster, options, self._pushed)
        finally:
            cluster.close()
        ranges = plan_ranges(options, states, spans)
        if options.limit is None:
            return tasks_of(options, ranges)
        # The rows of a range are an estimate: one task counts them as it reads.
        return [LimitedPartition(tuple(ranges), options.limit)] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return read_partition(self._options, self._shape, partition)


class FilteringBatchReader(TopicBatchReader):
    """A TopicBatchReader for queries with filters.

    It is a separate class, because Spark refuses all reads of a reader with `pushFilters` while filter
    pushdown is switched off, which is Spark's default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Notes the filters that narrow the read. Spark applies all filters again, so each may be left
        out."""
        self._pushed = Pushed.of(filters)
        # A limit counts rows of the topics, before filters.
        if self._options.limit is None and self._pushed.rows is not None:
            self._shape = replace(self._shape, rows=self._pushed.rows.and_keys(self._options.keys))
        return filters
