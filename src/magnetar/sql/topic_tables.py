"""A topic as a table: its columns, and how its values are decoded.

The fields of the newest schema are columns, followed by the columns that every topic has. A field whose name
is that of such a column is reached through `value`: `value.key`. Each message is decoded with its own schema
version.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from magnetar.arrow.arrays import ARROW_TYPES
from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.arrow.errors import ValueSchemaError
from magnetar.base.names import TopicName
from magnetar.client.client import Client, TopicSchema
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.tables.schema_formats import format_of_schema
from magnetar.tables.value_formats import BYTES, ValueFormat

VALUE: Final = "value"
_LEFT_OUT: Final = frozenset(("headers", "encryption"))
COMMON: Final = tuple(
    name for name in (*COLUMN_TYPES, *EXTRA_TYPES) if name not in _LEFT_OUT and name != VALUE
)
"""The columns that every topic has besides `value`: names, types and meanings are those of Spark's source."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The columns of one topic."""

    topic: TopicName
    schema: TopicSchema | None
    """The newest one."""
    value: ValueFormat
    fields: tuple[str, ...]
    """Fields of the value that are columns of their own."""
    remark: str = ""
    """Why the values are bytes although the topic has a schema; empty: they are not."""

    @property
    def columns(self) -> pa.Schema:
        """All columns with their types, in order."""
        assert self.value.type is not None
        kinds = {name: ARROW_TYPES[kind] for name, kind in (COLUMN_TYPES | EXTRA_TYPES).items()}
        return pa.schema(
            [
                *(self.value.type.field(name).with_nullable(True) for name in self.fields),
                pa.field(VALUE, self.value.type),
                *(pa.field(name, kinds[name]) for name in COMMON),
            ]
        )

    def uses_values(self, names: Collection[str] | None) -> bool:
        """Whether a statement that names these columns may need decoded values; None: it may name all."""
        return names is None or not {VALUE, *(name.lower() for name in self.fields)}.isdisjoint(names)

    def narrowed(self, names: Collection[str]) -> ValueFormat:
        """The format for rows of which only these columns are wanted, named in lower case: fields that are
        not wanted cost nothing."""
        assert self.value.type is not None
        wanted = [name for name in self.fields if name.lower() in names]
        if VALUE in names or not wanted or self.value.kind not in ("avro", "json", "protobuf"):
            return self.value
        return replace(self.value, type=pa.struct([self.value.type.field(name) for name in wanted]))


def table_of_topic(client: Client, topic: TopicName) -> TopicTable:
    """Asks for the newest schema. Raises ClientError."""
    schema = client.schema(topic)
    value, remark = BYTES, ""
    if schema is not None:
        try:
            value = format_of_schema(schema)
            if value.type is None:
                value = BYTES
            value.open(lambda _: None)
        except (ValueSchemaError, InvalidSchemaError, ValueError, KeyError) as error:
            value, remark = BYTES, str(error)
    return TopicTable(topic, schema, value, _fields(value), remark)


def _fields(value: ValueFormat) -> tuple[str, ...]:
    """The fields that become columns. Names that differ only in case cannot both be columns."""
    if value.type is None or not pa.types.is_struct(value.type):
        return ()
    taken = {VALUE, *COMMON}
    found = []
    for field in value.type:
        if field.name.lower() not in taken:
            taken.add(field.name.lower())
            found.append(field.name)
    return tuple(found)
