"""The data source `magnetar` of PySpark: every topic is a table.

Loaded at the first look-up of a data source in every session, so the parts are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from magnetar.arrow.columns import COLUMN_TYPES, column_types, columns_ddl
from magnetar.spark.errors import OptionError
from magnetar.spark.options import ReadOptions, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from magnetar.spark.batch import TopicBatchReader
    from magnetar.spark.stream import TopicStreamReader
    from magnetar.spark.writer import TopicBatchWriter, TopicStreamWriter


class MagnetarSource(DataSource):
    """Topics of a Magnetar or Pulsar cluster: batch and stream, read and write. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> str:
        options = ReadOptions.parse(self.options)
        return columns_ddl(options.columns, text=options.value_format == "string")

    def reader(self, schema: StructType) -> TopicBatchReader:
        from magnetar.spark.batch import TopicBatchReader

        options = ReadOptions.parse(self.options)
        return TopicBatchReader(options, _chosen_columns(schema, options))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802  # Spark's name
        from magnetar.spark.stream import TopicStreamReader

        options = ReadOptions.parse(self.options)
        return TopicStreamReader(options, _chosen_columns(schema, options))

    # Spark takes `overwrite` by position in some versions and by name in others.
    def writer(self, schema: StructType, overwrite: bool) -> TopicBatchWriter:
        from magnetar.spark.writer import TopicBatchWriter

        return TopicBatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802  # Spark's name
        from magnetar.spark.writer import TopicStreamWriter

        return TopicStreamWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)


def _chosen_columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The columns of a schema that a user may have given. Raises OptionError for what a topic has not."""
    types = column_types(text=options.value_format == "string")
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in types or kind != types[field.name]:
            raise OptionError(
                f"a topic has no column `{field.name} {kind}`; it has {columns_ddl(tuple(COLUMN_TYPES))}"
            )
        if not field.nullable:
            raise OptionError(f"column {field.name} has to be nullable")
    return tuple(schema.fieldNames())
