"""Encodes structs as Avro or JSON, and turns Spark's types into the topic's schema.

Avro values have the binary encoding without a header. JSON values are one object per row with the same
schema, as Pulsar's clients write them: times are in microseconds, dates in days, bytes base64, decimals text.
Nullable columns are unions with null.

Source: Avro 1.11 specification; Pulsar's schema types JSON and AVRO.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from magnetar.schemas.avro_bytes import long_bytes, sized
from magnetar.spark.errors import OptionError
from magnetar.wire import pulsar_pb2 as pb

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAYS: Final = date(1970, 1, 1).toordinal()

_PRIMITIVES: Final[dict[type[t.DataType], object]] = {
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def topic_schema(value_format: str, value: t.StructType) -> pb.Schema:
    """The schema for the topic. Raises OptionError for types and names that Avro does not have."""
    definition = _schema_of(value, value_format, "Record")
    return pb.Schema(
        name="Record",
        schema_data=json.dumps(definition, separators=(",", ":")).encode(),
        type=pb.Schema.Avro if value_format == "avro" else pb.Schema.Json,
    )


def _schema_of(kind: t.DataType, value_format: str, name: str) -> object:
    """Avro's definition of a type; `name` for records in it, which are named by their place."""
    primitive = _PRIMITIVES.get(type(kind))
    if primitive is not None:
        return primitive
    if isinstance(kind, t.DecimalType):
        if value_format == "json":
            return "string"
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if isinstance(kind, t.ArrayType):
        items = _nullable(_schema_of(kind.elementType, value_format, name), null=kind.containsNull)
        return {"type": "array", "items": items}
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        values = _nullable(_schema_of(kind.valueType, value_format, name), null=kind.valueContainsNull)
        return {"type": "map", "values": values}
    if isinstance(kind, t.StructType):
        fields = []
        for field in kind.fields:
            if _NAME.fullmatch(field.name) is None:
                raise OptionError(f"column `{field.name}` cannot be a field of Avro: rename it, AS a_name")
            inner = _schema_of(field.dataType, value_format, f"{name}_{field.name}")
            made: dict[str, object] = {"name": field.name, "type": _nullable(inner, null=field.nullable)}
            if field.nullable:
                made["default"] = None
            fields.append(made)
        return {"type": "record", "name": name, "fields": fields}
    raise OptionError(f"a column of type {kind.simpleString()} has no schema: cast it, or write bytes")


def _nullable(definition: object, *, null: bool) -> object:
    return ["null", definition] if null else definition


def encode_values(value_format: str, kind: t.StructType, values: pa.Array) -> list[bytes | None]:
    """The struct of each row as bytes; None where it is null."""
    if value_format == "json":
        rows = values.to_pylist(maps_as_pydicts="strict")
        return [None if row is None else _json(row) for row in rows]
    write = _writer(kind)
    rows = values.to_pylist(maps_as_pydicts="strict")
    return [None if row is None else write(row) for row in rows]


_dumps = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: _plain(value)
).encode


def _json(row: dict[str, object]) -> bytes:
    return _dumps(row).encode()


def _plain(value: object) -> object:
    """Converts a value for which JSON has no type."""
    if isinstance(value, datetime):
        return _micros(value)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAYS
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    assert isinstance(value, Decimal), value
    return str(value)


def _micros(value: datetime) -> int:
    past = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds


_Write = Callable[[Any], bytes]

_WRITERS: Final[dict[type[t.DataType], _Write]] = {
    t.StringType: lambda value: sized(value.encode()),
    t.BinaryType: sized,
    t.BooleanType: lambda value: b"\x01" if value else b"\x00",
    t.ByteType: long_bytes,
    t.ShortType: long_bytes,
    t.IntegerType: long_bytes,
    t.LongType: long_bytes,
    t.FloatType: struct.Struct("<f").pack,
    t.DoubleType: struct.Struct("<d").pack,
    t.DateType: lambda value: long_bytes(value.toordinal() - _EPOCH_DAYS),
    t.TimestampType: lambda value: long_bytes(_micros(value)),
    t.TimestampNTZType: lambda value: long_bytes(_micros(value)),
}


def _writer(kind: t.DataType) -> _Write:
    """Returns the function that encodes a value of the type as Avro."""
    simple = _WRITERS.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, t.DecimalType):
        scale = kind.scale
        return lambda value: sized(_two_complement(int(value.scaleb(scale))))
    if isinstance(kind, t.ArrayType):
        item = _or_null(_writer(kind.elementType), null=kind.containsNull)
        return lambda value: long_bytes(len(value)) * bool(value) + b"".join(map(item, value)) + b"\x00"
    if isinstance(kind, t.MapType):
        of_value = _or_null(_writer(kind.valueType), null=kind.valueContainsNull)

        def write_map(value: dict[str, object]) -> bytes:
            pairs = b"".join(sized(key.encode()) + of_value(each) for key, each in value.items())
            return long_bytes(len(value)) * bool(value) + pairs + b"\x00"

        return write_map
    assert isinstance(kind, t.StructType), kind
    fields = [(field.name, _or_null(_writer(field.dataType), null=field.nullable)) for field in kind.fields]
    return lambda value: b"".join([write(value[name]) for name, write in fields])


def _or_null(write: _Write, *, null: bool) -> _Write:
    return (lambda value: b"\x00" if value is None else b"\x02" + write(value)) if null else write


def _two_complement(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
