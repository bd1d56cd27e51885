"""The columns that can be written, and their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from magnetar.spark.errors import OptionError
from magnetar.spark.write.records import encode_values, topic_schema
from magnetar.spark.write.sink_options import WriteOptions

if TYPE_CHECKING:
    from magnetar.wire import pulsar_pb2 as pb

WRITE_COLUMNS: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "key_is_string": ("boolean",),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
    "ordering_key": ("binary", "string"),
    "topic": ("string",),
}
"""Columns with a meaning, with their types. Only `value` is required."""


class WrittenColumns:
    """The checked columns of one DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises OptionError for columns that a topic cannot take."""
        self._format = options.value_format
        self._record: StructType | None
        if self._format == "bytes":
            self._record = None
            _check(schema, schema.fieldNames())
        else:
            self._record = _record_of(self._format, schema)
            named = [name for name in schema.fieldNames() if name in WRITE_COLUMNS and name != "value"]
            _check(schema, named)
        if not options.topic and "topic" not in schema.fieldNames():
            raise OptionError("option 'topic' is missing, the topic to write to, and there is no such column")
        # Checked here, so that not only a task refuses it.
        _ = self.schema

    @property
    def schema(self) -> pb.Schema | None:
        """The schema for the topic; None for bytes. Made at each call, as protobuf objects cannot be
        pickled."""
        return None if self._record is None else topic_schema(self._format, self._record)

    def with_bytes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with `value` as bytes or text."""
        if self._record is None:
            return rows
        names = rows.schema.names
        if "value" in names:
            values = rows.column(names.index("value"))
        else:
            columns = [rows.column(names.index(field.name)) for field in self._record.fields]
            values = pa.StructArray.from_arrays(columns, names=self._record.fieldNames())
        made = {name: rows.column(names.index(name)) for name in names if name in WRITE_COLUMNS}
        made["value"] = pa.array(encode_values(self._format, self._record, values), pa.binary())
        return pa.RecordBatch.from_pydict(made)


def _record_of(value_format: str, schema: StructType) -> StructType:
    """The struct `value`, or a struct of all columns without a meaning."""
    names = schema.fieldNames()
    if "value" in names:
        kind = schema["value"].dataType
        if not isinstance(kind, StructType):
            raise OptionError(
                f"valueFormat={value_format} needs a struct as `value`, not {kind.simpleString()}: leave it"
                " out, and all columns without a meaning make the record, or select struct(*) AS value"
            )
        if others := [name for name in names if name not in WRITE_COLUMNS]:
            raise OptionError(f"beside a struct `value` there are columns that belong nowhere: {others}")
        return kind
    fields = [field for field in schema.fields if field.name not in WRITE_COLUMNS]
    if not fields:
        raise OptionError(f"valueFormat={value_format}: there is no column to make a record of")
    return StructType(fields)


def _check(schema: StructType, names: list[str]) -> None:
    for name in names:
        kind = schema[name].dataType.simpleString()
        if kind not in WRITE_COLUMNS.get(name, ()):
            offer = ", ".join(f"{known} {' or '.join(types)}" for known, types in WRITE_COLUMNS.items())
            raise OptionError(
                f"column `{name} {kind}` cannot be written; select from {offer}, for example with"
                " selectExpr('to_json(struct(*)) AS value'), or set valueFormat=json or avro"
            )
    if names == schema.fieldNames() and "value" not in names:
        raise OptionError(f"a column `value` is needed, there are {', '.join(names)}")
