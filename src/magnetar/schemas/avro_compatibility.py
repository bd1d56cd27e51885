"""Checks whether a reader with one Avro schema can read everything that was written with another.

The check applies Avro's resolution rules to all values instead of one. Records are matched by structure, not
by name, as in Pulsar, because applications rename their classes. Where the rules depend on the value (an enum
symbol, a branch of a union), every value must be readable.

For recursive types, a pair of types that is met again within its own comparison counts as readable. If it
later turns out not to be, the comparison is repeated with that knowledge, until no assumption was wrong (the
greatest fixed point).

Source: Apache Avro 1.12 specification, "Schema Resolution", "Aliases".
"""

from __future__ import annotations

from typing import Final

from magnetar.schemas.avro_definition import (
    Array,
    Avro,
    AvroRecord,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Union,
    describe,
)
from magnetar.schemas.errors import IncompatibleSchemaError

PROMOTIONS: Final[dict[str, frozenset[str]]] = {
    "long": frozenset(("int",)),
    "float": frozenset(("int", "long")),
    "double": frozenset(("int", "long", "float")),
    "bytes": frozenset(("string",)),
    "string": frozenset(("bytes",)),
}
"""For each type of the reader the other types that it can read."""

STEPS_MAX: Final = 50_000
"""Most compared pairs of types. Legal schemas need hundreds; more would stall the event loop."""
_DEPTH_MAX: Final = 128
"""Most nested pairs; each takes some frames of the stack."""


def unreadable(reader: Avro, writer: Avro) -> str | None:
    """Why a reader with schema `reader` cannot read all values written with `writer`; None when it can.

    The text names the first wrong field or other place, and the rule. Raises IncompatibleSchemaError when the
    schemas are too complex to compare.
    """
    comparison = _Comparison()
    while True:
        reason = comparison.run(reader, writer)
        if reason is not None or not comparison.believed_wrongly:
            return reason


class _Comparison:
    """One comparison; `_failed` grows with each pass, so the passes end."""

    def __init__(self) -> None:
        self._failed: dict[tuple[Avro, Avro], str] = {}
        self._readable: set[tuple[Avro, Avro]] = set()
        self._in_progress: set[tuple[Avro, Avro]] = set()
        self._believed: set[tuple[Avro, Avro]] = set()
        self._steps = 0
        self.believed_wrongly = False

    def run(self, reader: Avro, writer: Avro) -> str | None:
        """One pass."""
        self._readable.clear()
        self._believed.clear()
        self.believed_wrongly = False
        return self._check(reader, writer, "", 0)

    def _check(self, reader: Avro, writer: Avro, path: str, depth: int) -> str | None:
        self._steps += 1
        if self._steps > STEPS_MAX or depth > _DEPTH_MAX:
            raise IncompatibleSchemaError("the schemas are too complex to be compared")
        if not (isinstance(reader, AvroRecord) and isinstance(writer, AvroRecord)):
            return self._compare(reader, writer, path, depth)
        pair = (reader, writer)
        if pair in self._failed:
            return self._failed[pair]
        if pair in self._readable:
            return None
        if pair in self._in_progress:
            self._believed.add(pair)
            return None
        self._in_progress.add(pair)
        try:
            reason = self._record(reader, writer, path or reader.name, depth)
        finally:
            self._in_progress.discard(pair)
        if reason is None:
            self._readable.add(pair)
        else:
            self._failed[pair] = reason
            self.believed_wrongly = self.believed_wrongly or pair in self._believed
        return reason

    def _compare(self, reader: Avro, writer: Avro, path: str, depth: int) -> str | None:
        if isinstance(writer, Union):
            for branch in writer.branches:
                reason = self._check(reader, branch, path, depth + 1)
                if reason is not None:
                    return reason
            return None
        if isinstance(reader, Union):
            return self._into_union(reader, writer, path, depth)
        if isinstance(reader, Primitive) and isinstance(writer, Primitive):
            return _primitive(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self._check(reader.items, writer.items, f"{path}[]", depth + 1)
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self._check(reader.values, writer.values, f"{path}{{}}", depth + 1)
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return _enum(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _fixed(reader, writer, path)
        return _mismatch(reader, writer, path)

    def _into_union(self, reader: Union, writer: Avro, path: str, depth: int) -> str | None:
        meant: str | None = None
        for branch in reader.branches:
            reason = self._check(branch, writer, path, depth + 1)
            if reason is None:
                return None
            # The reason for the matching branch is more useful than "no branch fits".
            if _alike(branch, writer) and (meant is None or _same_name(branch, writer)):
                meant = reason
        return meant or _mismatch(reader, writer, path)

    def _record(self, reader: AvroRecord, writer: AvroRecord, path: str, depth: int) -> str | None:
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            source = _source(field, written)
            place = f"{path}.{field.name}"
            if source is not None:
                reason = self._check(field.type, source.type, place, depth + 1)
                if reason is not None:
                    return reason
            elif not field.has_default:
                return f"field {place} has no default value and is missing in what was written"
        return None


def _alike(reader: Avro, writer: Avro) -> bool:
    return type(reader) is type(writer) and not isinstance(reader, Primitive)


def _same_name(reader: Avro, writer: Avro) -> bool:
    named = (AvroRecord, Enum, Fixed)
    return isinstance(reader, named) and isinstance(writer, named) and reader.name == writer.name


def _source(field: Field, written: dict[str, Field]) -> Field | None:
    """The writer's field from which a reader's field is filled; None when there is none."""
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _primitive(reader: Primitive, writer: Primitive, path: str) -> str | None:
    if reader.kind != writer.kind:
        if writer.kind in PROMOTIONS.get(reader.kind, frozenset()):
            return None
        return _mismatch(reader, writer, path)
    return _decimals(reader, writer, path)


def _decimals(reader: Primitive | Fixed, writer: Primitive | Fixed, path: str) -> str | None:
    if reader.decimal is None or writer.decimal is None or reader.decimal == writer.decimal:
        return None
    texts = ["precision {}, scale {}".format(*each) for each in (writer.decimal, reader.decimal)]
    return f"{_at(path)}a decimal of {texts[0]} is not one of {texts[1]}"


def _enum(reader: Enum, writer: Enum, path: str) -> str | None:
    if reader.name != writer.name and writer.name not in reader.aliases:
        return _mismatch(reader, writer, path)
    missing = sorted(writer.symbols - reader.symbols)
    if missing and reader.default is None:
        return (
            f"{_at(path)}enum {reader.name} lacks the symbols {', '.join(missing[:8])}"
            " and has no default symbol"
        )
    return None


def _fixed(reader: Fixed, writer: Fixed, path: str) -> str | None:
    if reader.name != writer.name and writer.name not in reader.aliases:
        return _mismatch(reader, writer, path)
    if reader.size != writer.size:
        return f"{_at(path)}fixed {reader.name} has {writer.size} bytes as written, {reader.size} as read"
    return _decimals(reader, writer, path)


def _mismatch(reader: Avro, writer: Avro, path: str) -> str:
    return f"{_at(path)}what was written as {describe(writer)} cannot be read as {describe(reader)}"


def _at(path: str) -> str:
    return f"field {path}: " if path else ""
