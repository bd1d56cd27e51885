"""What a read gives: which columns, and what the value is. Decided on the driver, sent to tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from magnetar.arrow.arrays import ARROW_TYPES
from magnetar.arrow.columns import column_types
from magnetar.arrow.row_filter import RowFilter
from magnetar.spark.errors import OptionError
from magnetar.spark.value_formats import ValueFormat


@dataclass(frozen=True, slots=True)
class TableShape:
    """Can be pickled."""

    columns: tuple[str, ...]
    value: ValueFormat
    rows: RowFilter | None = None
    """Rows that a filter leaves out; None for none."""

    def spark_schema(self) -> StructType:
        """The table's schema as Spark has it."""
        return StructType([StructField(name, _type_of(name, self.value)) for name in self.columns])

    def chosen(self, schema: StructType) -> TableShape:
        """The columns of a schema that a user may have given; of the value's fields it may name some.

        Raises OptionError for what a topic has not.
        """
        known = column_types()
        value = self.value
        for field in schema.fields:
            if field.name not in known:
                raise OptionError(f"a topic has no column `{field.name}`; it has {', '.join(known)}")
            if not field.nullable:
                raise OptionError(f"column {field.name} has to be nullable")
            if field.name == "value":
                value = value.narrowed(field.dataType)
            elif field.dataType != _type_of(field.name, value):
                raise OptionError(
                    f"a topic has no column `{field.name} {field.dataType.simpleString()}`; it is"
                    f" {known[field.name]}"
                )
        return replace(self, columns=tuple(schema.fieldNames()), value=value)


def _type_of(name: str, value: ValueFormat) -> DataType:
    if name == "value":
        return value.spark_type
    return _TYPES[name]


_TYPES = {name: from_arrow_type(ARROW_TYPES[kind]) for name, kind in column_types().items()}
"""Parsed without a session, which neither planning nor tasks have."""
