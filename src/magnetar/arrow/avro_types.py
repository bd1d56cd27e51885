"""Parses Avro definitions to trees, and maps them to Arrow types.

| Avro | Arrow |
|---|---|
| null alone | null strings |
| boolean, int, long, float, double, string, bytes | the type of the same kind |
| enum; fixed | string; binary |
| decimal; date; timestamp-millis, -micros | decimal128; date32; timestamp[us, UTC] |
| local-timestamp-millis, -micros | timestamp[us] |
| array, map, record | list, map, struct |
| union with null | the other branch; all fields are nullable |
| union of int and long, of numbers | int64, double |
| other unions | struct of member0, member1 ..., one of which is not null |

Recursive types have no Arrow type.

Source: Apache Avro 1.12 specification; Spark's Avro data source for unions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from magnetar.arrow.errors import ValueSchemaError

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_UTC: Final = pa.timestamp("us", tz="UTC")
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_PRECISION_MAX: Final = 38
_DEPTH_MAX: Final = 64


@dataclass(slots=True, eq=False)
class AvroNode:
    """One type of a definition; its kind decides which attributes are used."""

    kind: str
    """A primitive's name, or enum, fixed, array, map, record, union."""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: list[str] = field(default_factory=list)
    items: AvroNode | None = None
    """Type of an array's items, or of a map's values."""
    branches: list[AvroNode] = field(default_factory=list)
    fields: list[NodeField] = field(default_factory=list)

    @property
    def is_decimal(self) -> bool:
        """Whether it is a decimal that Arrow supports."""
        return self.logical == "decimal" and 0 < self.precision <= _PRECISION_MAX

    @property
    def values(self) -> list[AvroNode]:
        """The branches of a union without null; for another type the type itself."""
        return [branch for branch in self.branches if branch.kind != "null"] if self.branches else [self]


@dataclass(slots=True, eq=False)
class NodeField:
    """One field of a record."""

    name: str
    names: tuple[str, ...]
    """The name and its aliases."""
    type: AvroNode
    default: object
    """The default in the definition; None also when there is none."""


def parse_avro(definition: bytes | str) -> AvroNode:
    """The tree of a definition. Raises ValueSchemaError."""
    try:
        return _Parser().node(json.loads(definition), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueSchemaError(f"no Avro definition: {error!r}") from error


_Definition = dict[str, Any]
"""The object that defines a type. A part of another kind than Avro prescribes raises an error where it is
used, which `parse_avro` reports."""


class _Parser:
    """A parser with the names that are defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, AvroNode] = {}

    def node(self, document: object, namespace: str) -> AvroNode:
        if isinstance(document, str):
            return self._by_name(document, namespace)
        if isinstance(document, list):
            return AvroNode("union", branches=[self.node(each, namespace) for each in document])
        if not isinstance(document, dict):
            raise TypeError(f"{document!r} is not a type")
        kind = document["type"]
        if kind == "array":
            return AvroNode("array", items=self.node(document["items"], namespace))
        if kind == "map":
            return AvroNode("map", items=self.node(document["values"], namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(document, kind, namespace)
        if not isinstance(kind, str) or kind not in PRIMITIVES:
            return self.node(kind, namespace)
        return self._logical(AvroNode(kind), document)

    def _by_name(self, name: str, namespace: str) -> AvroNode:
        if name in PRIMITIVES:
            return AvroNode(name)
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self._named:
                return self._named[full]
        raise ValueSchemaError(f"the Avro definition uses {name!r} and does not define it")

    def _logical(self, node: AvroNode, document: _Definition) -> AvroNode:
        node.logical = str(document.get("logicalType", ""))
        if node.logical == "decimal":
            node.precision, node.scale = int(document.get("precision", 0)), int(document.get("scale", 0))
        return node

    def _defined(self, document: _Definition, kind: str, namespace: str) -> AvroNode:
        name = document["name"]
        space = name.rpartition(".")[0] or document.get("namespace", namespace)
        node = AvroNode("record" if kind == "error" else kind)
        self._named[name if "." in name or not space else f"{space}.{name}"] = node
        if kind == "enum":
            node.symbols = list(document["symbols"])
        elif kind == "fixed":
            node.size = int(document["size"])
            self._logical(node, document)
        else:
            for item in document["fields"]:
                names = (item["name"], *item.get("aliases", ()))
                type_ = self.node(item["type"], space)
                node.fields.append(NodeField(item["name"], names, type_, item.get("default")))
        return node


def arrow_type(node: AvroNode, depth: int = 0) -> pa.DataType:
    """The Arrow type of a definition. Raises ValueSchemaError for recursive types."""
    if depth > _DEPTH_MAX:
        raise ValueSchemaError("the definition contains itself, which no column can: read it as a variant")
    if node.is_decimal and node.kind in ("bytes", "fixed"):
        return pa.decimal128(node.precision, node.scale)
    if (node.kind, node.logical) in _LOGICAL:
        return _LOGICAL[node.kind, node.logical]
    if node.kind in _SIMPLE:
        return _SIMPLE[node.kind]
    if node.kind == "union":
        return _union_type(node, depth)
    if node.kind == "record":
        return pa.struct([(each.name, arrow_type(each.type, depth + 1)) for each in node.fields])
    assert node.items is not None
    inside = arrow_type(node.items, depth + 1)
    return pa.list_(pa.field("element", inside)) if node.kind == "array" else pa.map_(pa.string(), inside)


def _union_type(node: AvroNode, depth: int) -> pa.DataType:
    values = node.values
    if not values:
        return pa.string()
    if len(values) == 1:
        return arrow_type(values[0], depth + 1)
    kinds = {each.kind for each in values if not each.logical}
    if len(kinds) == len(values):
        if kinds == {"int", "long"}:
            return pa.int64()
        if kinds <= {"int", "long", "float", "double"}:
            return pa.float64()
    members = [(f"member{number}", arrow_type(each, depth + 1)) for number, each in enumerate(values)]
    return pa.struct(members)
