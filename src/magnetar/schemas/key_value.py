"""KeyValue schemas, which consist of two schemas.

    schema_data    key size: 4, key definition, value size: 4, value definition; sizes big-endian
    properties     key.schema.type, value.schema.type: names of types; kv.encoding.type: INLINE, SEPARATED

Source: Pulsar's KeyValueSchemaInfo encoding.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.schemas.errors import InvalidSchemaError
from magnetar.schemas.types import TYPES
from magnetar.wire import pulsar_pb2 as pb

_SIZE: Final = struct.Struct(">i")


def split(schema: pb.Schema) -> tuple[pb.Schema, pb.Schema]:
    """The schemas of key and value. Raises InvalidSchemaError."""
    found = properties(schema)
    key_data, end = _part(schema.schema_data, 0)
    value_data, end = _part(schema.schema_data, end)
    if end != len(schema.schema_data):
        raise InvalidSchemaError("the KeyValue schema has bytes after its value's definition")
    return _schema("key", key_data, found), _schema("value", value_data, found)


def join(key: bytes, value: bytes) -> bytes:
    """Two definitions as `schema_data`."""
    return b"".join(_SIZE.pack(len(part)) + part for part in (key, value))


def properties(schema: pb.Schema) -> dict[str, str]:
    """The properties of a schema."""
    return {pair.key: pair.value for pair in schema.properties}


def _part(data: bytes, start: int) -> tuple[bytes, int]:
    if len(data) - start < _SIZE.size:
        raise InvalidSchemaError("the KeyValue schema ends before its definitions do")
    # -1 is how some clients write that a part has no definition.
    size = max(0, _SIZE.unpack_from(data, start)[0])
    start += _SIZE.size
    if size > len(data) - start:
        raise InvalidSchemaError("the KeyValue schema ends before its definitions do")
    return data[start : start + size], start + size


def _schema(part: str, data: bytes, found: dict[str, str]) -> pb.Schema:
    name = found.get(f"{part}.schema.type", "BYTES")
    number = TYPES["NONE"] if name == "BYTES" else TYPES.get(name)
    if number is None:
        raise InvalidSchemaError(f"the type {name!r} of the {part} of a KeyValue schema is unknown")
    return pb.Schema(
        name=found.get(f"{part}.schema.name", part),
        type=pb.Schema.Type.Name(number),
        schema_data=data,
    )
