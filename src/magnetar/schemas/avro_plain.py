"""Converts Avro's binary encoding to plain values and back, by a schema in JSON.

Logical types keep their stored numbers and bytes; bytes are base64 in JSON, in both directions.

Source: Avro 1.11 specification, binary encoding.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Final, TypeVar

from magnetar.client.errors import PayloadError
from magnetar.schemas.avro_bytes import long_bytes, sized

_T = TypeVar("_T")

_DEPTH_MAX: Final = 64
_ITEMS_MAX: Final = 1 << 20
"""Most items of an array or map whose items take no bytes: a few bytes must not become an endless list."""

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class AvroError(PayloadError):
    """The bytes do not follow the schema, or the schema is not supported."""


class _Bytes:
    """Reads bytes from the first to the last."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        stop = self.at + count
        if count < 0 or stop > len(self.data):
            raise AvroError("the value is shorter than its schema says")
        taken = self.data[self.at : stop]
        self.at = stop
        return taken

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise AvroError("a number has more than ten bytes")


_PRIMITIVES: Final[dict[str, Callable[[_Bytes], object]]] = {
    "null": lambda _: None,
    "boolean": lambda data: data.take(1) != b"\x00",
    "int": _Bytes.long,
    "long": _Bytes.long,
    "float": lambda data: _FLOAT.unpack(data.take(4))[0],
    "double": lambda data: _DOUBLE.unpack(data.take(8))[0],
    "bytes": lambda data: data.take(data.long()),
    "string": lambda data: data.take(data.long()).decode("utf-8", "replace"),
}


def decode(schema: object, data: bytes, *, whole: bool = False) -> object:
    """Decodes `data` by the schema (decoded JSON). `whole`: whether an error is raised when bytes follow the
    value, for messages whose schema is uncertain. Raises AvroError."""
    left = _Bytes(data)
    try:
        value = _decode(schema, left, _named(schema, {}), 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise AvroError(f"the schema is not supported: {error!r}") from error
    if whole and left.at < len(data):
        raise AvroError("the value is longer than its schema says")
    return value


def _named(schema: object, names: dict[str, object]) -> dict[str, object]:
    """Definitions of named types in a schema, by simple and full name."""
    if isinstance(schema, list):
        for each in schema:
            _named(each, names)
    elif isinstance(schema, dict):
        name = schema.get("name")
        if name is not None and schema.get("type") in ("record", "error", "enum", "fixed"):
            names[name.rpartition(".")[2]] = names[name] = schema
            if "namespace" in schema:
                names[f"{schema['namespace']}.{name}"] = schema
        for field in schema.get("fields", ()):
            _named(field["type"], names)
        for key in ("type", "items", "values"):
            if isinstance(schema.get(key), dict | list):
                _named(schema[key], names)
    return names


def _decode(schema: object, data: _Bytes, names: dict[str, object], depth: int) -> object:
    if depth > _DEPTH_MAX:
        raise AvroError(f"values are nested more than {_DEPTH_MAX} deep")
    if isinstance(schema, str):
        primitive = _PRIMITIVES.get(schema)
        return primitive(data) if primitive is not None else _decode(names[schema], data, names, depth + 1)
    if isinstance(schema, list):
        branch = data.long()
        if not 0 <= branch < len(schema):
            raise AvroError(f"branch {branch} of a union of {len(schema)}")
        return _decode(schema[branch], data, names, depth + 1)
    if not isinstance(schema, dict):
        raise _not_a_type(schema)
    kind = schema["type"]
    if kind in ("record", "error"):
        return {field["name"]: _decode(field["type"], data, names, depth + 1) for field in schema["fields"]}
    if kind == "enum":
        symbol = data.long()
        if not 0 <= symbol < len(schema["symbols"]):
            raise AvroError(f"symbol {symbol} of an enum of {len(schema['symbols'])}")
        return schema["symbols"][symbol]
    if kind == "fixed":
        return data.take(schema["size"])
    if kind == "array":
        return list(_items(data, lambda: _decode(schema["items"], data, names, depth + 1)))
    if kind == "map":
        string = _PRIMITIVES["string"]
        return dict(_items(data, lambda: (string(data), _decode(schema["values"], data, names, depth + 1))))
    return _decode(kind, data, names, depth + 1)


def _items(data: _Bytes, read: Callable[[], _T]) -> list[_T]:
    found: list[_T] = []
    while count := data.long():
        if count < 0:
            count = -count
            data.long()
        if len(found) + count > _ITEMS_MAX:
            raise AvroError(f"more than {_ITEMS_MAX} items")
        found += [read() for _ in range(count)]
    return found


def encode(schema: object, value: object) -> bytes:
    """Encodes a value (decoded JSON) by the schema. Raises AvroError, which names the field."""
    try:
        return _encode(schema, value, _named(schema, {}), "")
    except (KeyError, TypeError, AttributeError) as error:
        raise AvroError(f"the schema is not supported: {error!r}") from error


def _encode(schema: object, value: object, names: dict[str, object], place: str) -> bytes:
    """Encodes one value. `place`: path of the value in the message, for errors."""
    if isinstance(schema, str):
        return (
            _primitive(schema, value, place)
            if schema in _PRIMITIVES
            else _encode(names[schema], value, names, place)
        )
    if isinstance(schema, list):
        return _branch(schema, value, names, place)
    if not isinstance(schema, dict):
        raise _not_a_type(schema)
    kind = schema["type"]
    if kind in ("record", "error"):
        value = _as(dict, value, "an object", place)
        parts = []
        for field in schema["fields"]:
            inner = f"{place}.{field['name']}".removeprefix(".")
            _expect(field["name"] in value or "default" in field, "there", inner)
            given = value[field["name"]] if field["name"] in value else field["default"]
            parts.append(_encode(field["type"], given, names, inner))
        unknown = sorted(value.keys() - {field["name"] for field in schema["fields"]})
        _expect(not unknown, f"without {', '.join(unknown)}", place)
        return b"".join(parts)
    if kind == "enum":
        _expect(value in schema["symbols"], f"one of {', '.join(schema['symbols'])}", place)
        return long_bytes(schema["symbols"].index(value))
    if kind == "fixed":
        raw = _raw(value, place)
        _expect(len(raw) == schema["size"], f"of {schema['size']} bytes", place)
        return raw
    if kind == "array":
        value = _as(list, value, "a list", place)
        items = [_encode(schema["items"], each, names, f"{place}[{i}]") for i, each in enumerate(value)]
        return (long_bytes(len(items)) if items else b"") + b"".join(items) + b"\x00"
    if kind == "map":
        value = _as(dict, value, "an object", place)
        items = [
            sized(key.encode()) + _encode(schema["values"], each, names, f"{place}.{key}")
            for key, each in value.items()
        ]
        return (long_bytes(len(items)) if items else b"") + b"".join(items) + b"\x00"
    return _encode(kind, value, names, place)


def _branch(schema: list[object], value: object, names: dict[str, object], place: str) -> bytes:
    """Encodes a value as the first branch of a union that fits. Raises AvroError."""
    said = []
    for number, branch in enumerate(schema):
        try:
            return long_bytes(number) + _encode(branch, value, names, place)
        except AvroError as error:
            said.append(str(error))
    raise AvroError(said[-1] if said else f"{place}: a union without branches")


def _expect(holds: bool, what: str, place: str) -> None:
    if not holds:
        raise AvroError(f"{place or 'the value'} is not {what}")


def _as(kind: type[_T], value: object, what: str, place: str) -> _T:
    """The value, which must be of this type. Raises AvroError."""
    if not isinstance(value, kind):
        raise AvroError(f"{place or 'the value'} is not {what}")
    return value


def _not_a_type(schema: object) -> TypeError:
    return TypeError(f"{schema!r} is not a type")


def _primitive(kind: str, value: object, place: str) -> bytes:
    if kind == "null":
        _expect(value is None, "null", place)
        return b""
    if kind == "boolean":
        _expect(isinstance(value, bool), "true or false", place)
        return b"\x01" if value else b"\x00"
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        what = f"a whole number of {bits + 1} bits"
        _expect(not isinstance(value, bool), what, place)
        whole = _as(int, value, what, place)
        _expect(-(1 << bits) <= whole < 1 << bits, what, place)
        return long_bytes(whole)
    if kind in ("float", "double"):
        _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number", place)
        return (_FLOAT if kind == "float" else _DOUBLE).pack(value)
    if kind == "bytes":
        return sized(_raw(value, place))
    return sized(_as(str, value, "a text", place).encode())


def _raw(value: object, place: str) -> bytes:
    try:
        return base64.b64decode(_as(str, value, "base64", place), validate=True)
    except ValueError:
        raise AvroError(f"{place or 'the value'} is not base64") from None
