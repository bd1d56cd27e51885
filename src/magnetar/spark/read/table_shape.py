"""The columns of a read and the type of the value. The driver decides them, and sends them to tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from magnetar.arrow.arrays import ARROW_TYPES
from magnetar.arrow.columns import column_types
from magnetar.arrow.row_filter import RowFilter
from magnetar.spark.errors import OptionError
from magnetar.spark.read.spark_values import narrowed, spark_type
from magnetar.tables.value_formats import ValueFormat


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of a read, and how values are decoded. Can be pickled."""

    columns: tuple[str, ...]
    value: ValueFormat
    rows: RowFilter | None = None
    """The conditions for rows, from filters; None for all rows."""
    rescue: str = ""
    """The column with the payloads of values that do not match their schema; empty for none."""
    seeks_broken: bool = False
    """Whether such values are collected instead of being an error."""

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns that the decoder returns."""
        names = tuple(name for name in self.columns if name != self.rescue)
        return names if "value" in names or not self.rescue else (*names, "value")

    def spark_schema(self) -> StructType:
        """The table's schema in Spark's types."""
        return StructType([StructField(name, self._type_of(name, self.value)) for name in self.columns])

    def chosen(self, schema: StructType) -> TableShape:
        """The shape with the columns of a schema from the user, which may name only some fields of the value.

        Raises OptionError for a column that topics do not have.
        """
        known = column_types() | ({self.rescue: "binary"} if self.rescue else {})
        value = self.value
        for field in schema.fields:
            if field.name not in known:
                raise OptionError(f"a topic has no column `{field.name}`; it has {', '.join(known)}")
            if not field.nullable:
                raise OptionError(f"column {field.name} has to be nullable")
            if field.name == "value":
                value = narrowed(value, field.dataType)
            elif field.dataType != self._type_of(field.name, value):
                raise OptionError(
                    f"a topic has no column `{field.name} {field.dataType.simpleString()}`; it is"
                    f" {known[field.name]}"
                )
        names = tuple(schema.fieldNames())
        return replace(self, columns=names, value=value, rescue=self.rescue if self.rescue in names else "")

    def _type_of(self, name: str, value: ValueFormat) -> DataType:
        if name == "value":
            return spark_type(value)
        return BinaryType() if name == self.rescue else _TYPES[name]


_TYPES = {name: from_arrow_type(ARROW_TYPES[kind]) for name, kind in column_types().items()}
"""Spark's types of the columns. They are made without a session, which planning and tasks do not have."""
