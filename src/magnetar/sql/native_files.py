"""Files of history as the engine's own Parquet reader takes them, as text. Pure.

Source: docs/internals/history-format.md; DuckDB's `read_parquet`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import pyarrow as pa

from magnetar.arrow.errors import ValueSchemaError
from magnetar.base.names import TopicName
from magnetar.client.client import TopicSchema
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.sql.plans import FilePart
from magnetar.sql.table_names import always_quoted, text_literal
from magnetar.sql.topic_tables import VALUE, TopicTable
from magnetar.tables.history_files import FileFacts
from magnetar.tables.schema_formats import format_of_schema

_PATTERN: Final = frozenset("*?[")
"""Characters that the engine takes for a pattern of paths."""


def is_plain_path(path: str) -> bool:
    """Whether the engine takes the path as it is."""
    return _PATTERN.isdisjoint(path)


def reads_values(table: TopicTable, facts: FileFacts, names: Collection[str] | None) -> bool:
    """Whether the decoded values of a file are those that the topic's newest schema gives.

    `names`: the columns that are wanted; None: all.
    """
    if table.value.kind == "bytes":
        return True
    if table.value.kind not in ("avro", "json", "protobuf") or facts.value is None or table.schema is None:
        return False
    wanted = table.narrowed(names if names is not None else [VALUE]).type
    if not _has_fields(facts.value, wanted):
        return False
    newest = facts.schemas[-1] if facts.schemas else None
    if newest is not None and (newest.kind, newest.definition) == (table.schema.type, table.schema.data):
        return True
    # A later version of the schema reads these fields in the same way when every version in the file has
    # them. Fields of Protobuf are read by their numbers, which may have changed.
    return table.value.kind != "protobuf" and all(
        each.kind == table.schema.type
        and _has_fields(_type_of(TopicSchema(each.kind, each.definition, each.version)), wanted)
        for each in facts.schemas
    )


def _type_of(schema: TopicSchema) -> pa.DataType | None:
    try:
        return format_of_schema(schema).type
    except (ValueSchemaError, InvalidSchemaError, ValueError, KeyError):
        return None


def _has_fields(there: pa.DataType | None, wanted: pa.DataType | None) -> bool:
    """Whether a struct has all wanted fields, with the same types."""
    if there is None or wanted is None or not pa.types.is_struct(there) or not pa.types.is_struct(wanted):
        return False
    for field in wanted:
        number = there.get_field_index(field.name)
        if number < 0 or not _same(there.field(number).type, field.type):
            return False
    return True


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are the same but for the names of what they hold."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [each.name for each in one] == [each.name for each in other] and all(
            _same(left.type, right.type) for left, right in zip(one, other, strict=True)
        )
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _same(one.key_type, other.key_type) and _same(one.item_type, other.item_type)
    return bool(one == other)


def selects(
    topic: TopicName,
    table: TopicTable,
    files: Sequence[FilePart],
    path_of: Callable[[FilePart], str],
    names: Collection[str] | None,
) -> list[str]:
    """SELECT statements for the messages of these files of one partition, with all columns of the table.

    `names`: the columns that are wanted; None: all. Other columns of values are null.
    """
    groups: dict[tuple[bool, bool, bool], list[FilePart]] = {}
    for part in files:
        has_value = part.facts.value is not None
        traits = part.facts.traits
        is_clean = part.is_whole and not traits.has_hidden
        groups.setdefault((is_clean, part.is_whole, has_value), []).append(part)
    made = []
    for (is_clean, is_whole, has_value), parts in groups.items():
        values = table.uses_values(names) and (has_value or table.value.kind == "bytes")
        has_nulls = any(part.facts.traits.has_nulls for part in parts)
        columns = ", ".join(_columns(topic, table, names, values=values, has_nulls=has_nulls))
        paths = ", ".join(text_literal(path_of(part)) for part in parts)
        conditions = []
        if not is_clean:
            conditions = ["marker_type IS NULL", "NOT is_compacted_out"]
        if not is_whole:
            conditions.append(_clip(parts))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        made.append(f"SELECT {columns} FROM read_parquet([{paths}], hive_partitioning = false){where}")
    return made


def _clip(parts: Iterable[FilePart]) -> str:
    wanted = [
        f"(ledger_id = {each.start[0]} AND entry_id >= {each.start[1]} AND entry_id < {each.end[1]})"
        for part in parts
        for each in part.stretches
    ]
    return f"({' OR '.join(wanted)})"


def _columns(
    topic: TopicName, table: TopicTable, names: Collection[str] | None, *, values: bool, has_nulls: bool
) -> list[str]:
    payload = "CASE WHEN is_null_value THEN NULL ELSE payload END" if has_nulls else "payload"
    special = {
        "topic": text_literal(str(topic.base)),
        "partition": f"{topic.partition}::INTEGER",
        "message_id": f"concat_ws(':', ledger_id, entry_id, '{topic.partition}', batch_index)",
        "redelivery_count": "0::INTEGER",
        "payload": payload,
        VALUE: payload if table.value.kind == "bytes" else _value(table, names, values=values),
    }
    made = []
    for name in table.columns.names:
        if name in table.fields:
            kind = duck_type(table.columns.field(name).type)
            shown = f"value.{always_quoted(name)}" if values and _is_wanted(name, names) else f"NULL::{kind}"
        else:
            shown = special.get(name, name)
        made.append(f"{shown} AS {always_quoted(name)}")
    return made


def _is_wanted(name: str, names: Collection[str] | None) -> bool:
    return names is None or name.lower() in names or VALUE in names


def _value(table: TopicTable, names: Collection[str] | None, *, values: bool) -> str:
    assert table.value.type is not None
    kind = duck_type(table.value.type)
    if not values or not (names is None or VALUE in names):
        return f"NULL::{kind}"
    packed = ", ".join(
        f"{always_quoted(each.name)} := value.{always_quoted(each.name)}" for each in table.value.type
    )
    return f"CASE WHEN value IS NULL THEN NULL ELSE struct_pack({packed}) END"


def duck_type(kind: pa.DataType) -> str:
    """The engine's name of an Arrow type."""
    if pa.types.is_struct(kind):
        inside = ", ".join(f"{always_quoted(each.name)} {duck_type(each.type)}" for each in kind)
        return f"STRUCT({inside})"
    if pa.types.is_list(kind):
        return f"{duck_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({duck_type(kind.key_type)}, {duck_type(kind.item_type)})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SIMPLE[str(kind)]


_SIMPLE: Final = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "time32[ms]": "TIME",
    "time64[us]": "TIME",
}
