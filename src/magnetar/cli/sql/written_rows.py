"""Rows of a result as messages of a topic. Pure.

| Column | What becomes of it |
|---|---|
| `key` | the key: text, or bytes that are UTF-8 |
| `event_time` | the event time |
| `properties` | the properties: a map of texts |
| `value`, without fields beside it | the whole value; null deletes the key |
| others | fields of the value |

A topic that has a schema gets values of it. Another one gets a schema of JSON, of the fields; or bytes, of
`value`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from magnetar.cli.messages.topic_writer import OutgoingMessage
from magnetar.sql.engine_tree import Node
from magnetar.sql.errors import StatementError
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.client.client import TopicSchema

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BESIDE: Final = ("key", "event_time", "properties")
"""Columns that are not of the value."""
VALUE: Final = "value"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_MAX: Final = 1 << 63


class WrittenRows:
    """The columns of a result, and the schema that their values have."""

    def __init__(self, columns: pa.Schema, there: TopicSchema | None) -> None:
        """`there`: the newest schema of the topic. Raises StatementError for what does not fit it."""
        self._fields = [name for name in columns.names if name not in BESIDE]
        self.schema: pb.Schema | None = None
        """To be registered; None: the topic has one, or needs none."""
        if len(set(columns.names)) < len(columns.names) or not self._fields:
            raise StatementError("each column of the result needs its own name, and one has to be the value")
        self._is_whole = self._fields == [VALUE]
        self._kinds: dict[str, object] = {}
        if there is not None and there.type in (pb.Schema.Json, pb.Schema.Avro):
            self._kinds = {each["name"]: each["type"] for each in json.loads(there.data).get("fields", ())}
            self._check_fields()
        elif there is None and not self._is_whole:
            fields = [_field(columns.field(name)) for name in self._fields]
            definition = {"type": "record", "name": "Row", "fields": fields}
            self._kinds = {each["name"]: each["type"] for each in fields}
            data = json.dumps(definition, separators=(",", ":")).encode()
            self.schema = pb.Schema(name="Row", type=pb.Schema.Json, schema_data=data)
        elif not self._is_whole:
            raise StatementError("the topic's schema has no fields: name one column `value`")
        self.has_text = there is not None or self.schema is not None
        """Whether the payload of a message is JSON, which is encoded by the schema; else it is the bytes."""

    def _check_fields(self) -> None:
        unknown = [name for name in self._fields if name not in self._kinds]
        if unknown and not self._is_whole:
            raise StatementError(
                f"the schema of the topic has no field {unknown[0]}: its fields are {', '.join(self._kinds)}"
            )

    def message(self, row: Mapping[str, object]) -> OutgoingMessage:
        """One row. Raises StatementError for values that no message can have."""
        value = row[VALUE] if self._is_whole else {name: row[name] for name in self._fields}
        moment = row.get("event_time")
        if moment is not None and not isinstance(moment, datetime):
            raise StatementError("event_time has to be a time")
        return OutgoingMessage(
            payload=b"" if value is None else self._payload(value),
            key=_text(row.get("key"), "key"),
            properties=_properties(row.get("properties")),
            event_time_ms=None if moment is None else _micros(moment) // 1000,
            is_null=value is None,
        )

    def _payload(self, value: object) -> bytes:
        if not self.has_text:
            return value if isinstance(value, bytes) else str(value).encode()
        if isinstance(value, dict) and self._kinds:
            value = {name: _plain(each, self._kinds.get(name)) for name, each in value.items()}
        elif isinstance(value, str | bytes):
            return value if isinstance(value, bytes) else value.encode()
        return json.dumps(_plain(value, None), ensure_ascii=False).encode()


def _text(value: object, column: str) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise StatementError(f"{column} has bytes that are not UTF-8: write it as text") from error
    return None if value is None else str(value)


def _properties(value: object) -> dict[str, str]:
    pairs = value if isinstance(value, list) else []
    return {str(name): str(text) for name, text in pairs if text is not None}


def _plain(value: object, kind: object) -> object:
    """A value as the text of its schema has it. `kind`: Avro's type; None: unknown."""
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), None)
    logical = str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""
    in_millis = logical.endswith("millis")
    if isinstance(value, datetime):
        return _micros(value) // (1000 if in_millis else 1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, time):
        micros = _micros(datetime.combine(_EPOCH.date(), value, UTC))
        return micros // (1000 if in_millis else 1)
    if isinstance(value, Decimal):
        return _number(value, kind)
    if isinstance(value, bytes):
        return _text(value, "a text") if kind == "string" else base64.b64encode(value).decode()
    if isinstance(value, dict):
        fields = cast("Sequence[Node]", _part(kind, "fields", ()))
        inside = {each["name"]: each["type"] for each in fields}
        return {name: _plain(each, inside.get(name)) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {str(name): _plain(each, _part(kind, "values", None)) for name, each in value}
    if isinstance(value, list):
        return [_plain(each, _part(kind, "items", None)) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _number(value: Decimal, kind: object) -> object:
    if kind in ("float", "double"):
        return float(value)
    if kind not in ("int", "long"):
        return str(value)
    if value != value.to_integral_value() or not -_LONG_MAX <= value < _LONG_MAX:
        raise StatementError(f"{value} is not a whole number of 64 bits: cast it, as in sum(x)::DOUBLE")
    return int(value)


def _part(kind: object, name: str, otherwise: object) -> object:
    return kind.get(name, otherwise) if isinstance(kind, dict) else otherwise


# ---------------------------------------------------------------- a schema for a topic without one


def _field(column: pa.Field, within: str = "Row") -> Node:
    if _NAME.fullmatch(column.name) is None:
        raise StatementError(f"{column.name} cannot be the name of a field: rename it, AS a_name")
    return {
        "name": column.name,
        "type": ["null", _type(column.type, f"{within}_{column.name}")],
        "default": None,
    }


def _type(kind: pa.DataType, name: str) -> object:
    """Avro's type. `name`: of a record, by its place."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return "long" if kind.scale == 0 else "string"
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": [_field(each, name) for each in kind]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, name)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_type, name)]}
    simple = _SIMPLE.get(str(kind))
    if simple is None:
        raise StatementError(f"a column of the type {kind} has no schema: cast it")
    return simple


_SIMPLE: Final[dict[str, object]] = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date32[day]": {"type": "int", "logicalType": "date"},
    "time64[us]": {"type": "long", "logicalType": "time-micros"},
}


def _micros(value: datetime) -> int:
    past = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds
