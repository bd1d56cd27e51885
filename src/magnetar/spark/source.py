"""The data source `magnetar` of PySpark: every topic is a table.

Each session loads this module at its first look-up of a data source. So it imports other modules only when
they are used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from magnetar.arrow.columns import columns_ddl
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.write.sink_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from magnetar.spark.read.batch import TopicBatchReader
    from magnetar.spark.read.stream import TopicStreamReader
    from magnetar.spark.read.table_shape import TableShape
    from magnetar.spark.write.topic_writers import TopicBatchWriter, TopicStreamWriter


_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


_PLAIN: Final = {"bytes": "binary", "string": "string"}
"""Formats without a schema, with Spark's type of the value."""


class MagnetarSource(DataSource):
    """Topics of a Magnetar or Pulsar cluster: batch and stream, read and write. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType | str:
        options = ReadOptions.parse(self.options)
        if options.value.format in _PLAIN:
            # Spark starts a process for each call: a text needs neither Arrow nor the cluster.
            return columns_ddl(options.columns, _PLAIN[options.value.format], rescue=options.rescue_column)
        return table_shape(options).spark_schema()

    def reader(self, schema: StructType) -> TopicBatchReader:
        from magnetar.spark.read.batch import FilteringBatchReader, TopicBatchReader

        options = ReadOptions.parse(self.options)
        shape = table_shape(options).chosen(schema)
        if options.push_filters and _is_pushing():
            return FilteringBatchReader(options, shape)
        return TopicBatchReader(options, shape)

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802  # Spark's name
        from magnetar.spark.read.stream import TopicStreamReader

        options = ReadOptions.parse(self.options)
        return TopicStreamReader(options, table_shape(options).chosen(schema))

    # Spark takes `overwrite` by position in some versions and by name in others.
    def writer(self, schema: StructType, overwrite: bool) -> TopicBatchWriter:
        from magnetar.spark.write.topic_writers import TopicBatchWriter

        return TopicBatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802  # Spark's name
        from magnetar.spark.write.topic_writers import TopicStreamWriter

        return TopicStreamWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)


class PulsarSource(MagnetarSource):
    """MagnetarSource under the name that jobs for Apache Pulsar use."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"


def table_shape(options: ReadOptions) -> TableShape:
    """The table of these options. Asks the cluster when the type of the value depends on a schema."""
    from magnetar.arrow.row_filter import RowFilter
    from magnetar.spark.read.table_shape import TableShape

    rows = None if options.keys is None else RowFilter(keys=options.keys)
    seeks_broken = options.mode != "failfast"
    if options.value.format in _PLAIN or not {"value", options.rescue_column} & {*options.columns}:
        from magnetar.tables.value_formats import BYTES, TEXT

        plain = TEXT if options.value.format == "string" else BYTES
        return TableShape(options.columns, plain, rows, options.rescue_column, seeks_broken)
    from magnetar.spark.cluster import SparkCluster
    from magnetar.spark.topic_schemas import value_format

    cluster = SparkCluster(options.connection)
    try:
        topics = cluster.partitions(options.topics, options.pattern, options.namespace)
        value = value_format(cluster.client, topics, options.value)
        return TableShape(options.columns, value, rows, options.rescue_column, seeks_broken)
    finally:
        cluster.close()


def _is_pushing() -> bool:
    """Whether Spark pushes filters in this process. Other processes refuse a reader that accepts filters.

    Spark runs a program for each step of planning; that for filters runs only with filter pushdown.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)
