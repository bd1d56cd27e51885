"""Parses Avro definitions from JSON into types with resolved names.

The parser is strict where a mistake would change the meaning (unknown types, duplicate fields), and lenient
where it only affects code generation (unknown attributes, illegal characters in names, a name defined again:
the last definition counts).

Source: Apache Avro 1.12 specification, "Schema Declaration", "Names", "Aliases".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.schemas.errors import InvalidSchemaError

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
DEPTH_MAX: Final = 64
"""Most levels of nested types, which bounds the use of the stack."""


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without parts."""

    kind: str
    decimal: tuple[int, int] | None = None
    """Precision and scale of the logical type `decimal`."""


@dataclass(slots=True, eq=False)
class Array:
    items: Avro


@dataclass(slots=True, eq=False)
class Map:
    values: Avro


@dataclass(slots=True, eq=False)
class Union:
    branches: list[Avro]


@dataclass(slots=True, eq=False)
class Fixed:
    name: str
    aliases: frozenset[str]
    size: int
    decimal: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Enum:
    name: str
    aliases: frozenset[str]
    symbols: frozenset[str]
    default: str | None


@dataclass(slots=True, eq=False)
class Field:
    name: str
    aliases: tuple[str, ...]
    type: Avro
    has_default: bool


@dataclass(slots=True, eq=False)
class AvroRecord:
    name: str
    fields: list[Field] = field(default_factory=list)
    """Filled after the record exists: its fields may refer to it."""


Avro = Primitive | Array | Map | Union | Fixed | Enum | AvroRecord
"""A type. Compared by identity: types may contain themselves."""


def describe(type_: Avro) -> str:
    """A short description of the type for errors."""
    if isinstance(type_, Primitive):
        return type_.kind
    if isinstance(type_, (AvroRecord, Enum, Fixed)):
        return f"{type(type_).__name__.removeprefix('Avro').lower()} {type_.name}"
    if isinstance(type_, Union):
        return f"union [{', '.join(describe(branch) for branch in type_.branches[:8])}]"
    return type(type_).__name__.lower()


def parse_json(data: bytes, what: str) -> object:
    """The JSON document in `data`. Raises InvalidSchemaError, which names `what`."""
    try:
        document: object = json.loads(data)
        return document
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"{what} is not JSON: {error}") from error


def parse(document: object) -> Avro:
    """The type that a definition describes. Raises InvalidSchemaError."""
    return _Parser().type(document, "", "the schema", 0)


class _Parser:
    """A parser with the names defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, Avro] = {}

    def type(self, document: object, namespace: str, where: str, depth: int) -> Avro:
        """The type of a part of the definition. `where`: its path, for errors. Raises InvalidSchemaError."""
        if depth > DEPTH_MAX:
            raise InvalidSchemaError(f"{where}: types are nested deeper than {DEPTH_MAX} levels")
        if isinstance(document, str):
            return self._by_name(document, namespace, where)
        if isinstance(document, list):
            branches = [self.type(each, namespace, where, depth + 1) for each in document]
            if any(isinstance(branch, Union) for branch in branches):
                raise InvalidSchemaError(f"{where}: a union directly within a union")
            return Union(branches)
        if not isinstance(document, dict):
            raise InvalidSchemaError(f"{where}: a type is a name, a list or an object")
        return self._object(document, namespace, where, depth)

    def _by_name(self, name: str, namespace: str, where: str) -> Avro:
        if name in PRIMITIVES:
            return Primitive(name)
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self._named:
                return self._named[full]
        raise InvalidSchemaError(f"{where}: there is no type {name!r}")

    def _object(self, document: dict[str, object], namespace: str, where: str, depth: int) -> Avro:
        kind = document.get("type")
        if kind == "array":
            return Array(self.type(document.get("items"), namespace, f"{where}[]", depth + 1))
        if kind == "map":
            return Map(self.type(document.get("values"), namespace, f"{where}{{}}", depth + 1))
        if kind in ("record", "error"):
            return self._record(document, namespace, where, depth)
        if kind == "enum":
            return self._enum(document, namespace, where)
        if kind == "fixed":
            return self._fixed(document, namespace, where)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return Primitive(kind, _decimal(document) if kind == "bytes" else None)
        return self.type(kind, namespace, where, depth + 1)

    def _name(
        self, document: dict[str, object], namespace: str, where: str
    ) -> tuple[str, str, frozenset[str]]:
        """Full name, namespace of the nested types, and unqualified aliases. Raises InvalidSchemaError."""
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchemaError(f"{where}: a {document['type']} needs a name")
        space = document.get("namespace")
        if "." in name:
            full = name
        else:
            own = space if isinstance(space, str) else namespace
            full = f"{own}.{name}" if own else name
        aliases = frozenset(alias.rpartition(".")[2] for alias in _strings(document, "aliases", where))
        return full, full.rpartition(".")[0], aliases

    def _record(self, document: dict[str, object], namespace: str, where: str, depth: int) -> Avro:
        full, inside, _ = self._name(document, namespace, where)
        record = AvroRecord(full.rpartition(".")[2])
        self._named[full] = record
        seen: set[str] = set()
        for item in _list(document, "fields", where):
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(item, dict) or not isinstance(name, str) or not name:
                raise InvalidSchemaError(f"{where}: a field of record {record.name} has no name")
            place = f"field {name} of {record.name}"
            if name in seen:
                raise InvalidSchemaError(f"{place} is there twice")
            seen.add(name)
            type_ = self.type(item.get("type"), inside, place, depth + 1)
            aliases = tuple(_strings(item, "aliases", place))
            record.fields.append(Field(name, aliases, type_, "default" in item))
        return record

    def _enum(self, document: dict[str, object], namespace: str, where: str) -> Avro:
        full, _, aliases = self._name(document, namespace, where)
        symbols = frozenset(_strings(document, "symbols", where))
        default = document.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchemaError(f"{where}: the default {default!r} of enum {full} is not in its symbols")
        enum = Enum(full.rpartition(".")[2], aliases, symbols, default)
        self._named[full] = enum
        return enum

    def _fixed(self, document: dict[str, object], namespace: str, where: str) -> Avro:
        full, _, aliases = self._name(document, namespace, where)
        size = document.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidSchemaError(f"{where}: fixed {full} needs a size in bytes")
        fixed = Fixed(full.rpartition(".")[2], aliases, size, _decimal(document))
        self._named[full] = fixed
        return fixed


def _decimal(document: dict[str, object]) -> tuple[int, int] | None:
    precision, scale = document.get("precision"), document.get("scale", 0)
    if document.get("logicalType") != "decimal" or not isinstance(precision, int):
        # The specification says that an invalid logical type is to be ignored.
        return None
    return (precision, scale) if isinstance(scale, int) else None


def _list(document: dict[str, object], key: str, where: str) -> list[object]:
    value = document.get(key)
    if not isinstance(value, list):
        raise InvalidSchemaError(f"{where}: {key} of a {document.get('type')} must be a list")
    return value


def _strings(document: dict[str, object], key: str, where: str) -> Iterator[str]:
    if key == "aliases" and key not in document:
        return
    for value in _list(document, key, where):
        if not isinstance(value, str):
            raise InvalidSchemaError(f"{where}: {key} must be texts")
        yield value
