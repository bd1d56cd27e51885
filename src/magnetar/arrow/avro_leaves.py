"""Reads Avro types without parts at many places at once.

Source: Apache Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow import arrays
from magnetar.arrow.avro_types import AvroNode
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import Bytes, Ints, read_varints
from magnetar.client.errors import PayloadError

Read: TypeAlias = Callable[[Bytes, Ints], tuple[pa.Array, Ints]]
"""Reads a type at these offsets; returns its array (None when it is skipped), and the offsets after it."""

_PROMOTED: Final[dict[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "boolean": (pa.types.is_boolean,),
    "int": (pa.types.is_int32, pa.types.is_int64, pa.types.is_floating),
    "long": (pa.types.is_int64, pa.types.is_floating),
    "float": (pa.types.is_floating,),
    "double": (pa.types.is_float64,),
    "string": (pa.types.is_string, pa.types.is_binary),
    "bytes": (pa.types.is_binary, pa.types.is_string),
    "enum": (pa.types.is_string,),
    "fixed": (pa.types.is_binary,),
    "null": (lambda _: True,),
}
"""Tests of the Arrow types as which a writer's type may be read."""

_UNIT_TO_US: Final = {"millis": 1000, "micros": 1}


def zigzags(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The signed numbers at these offsets, and the offsets after them. Raises PayloadError."""
    if len(at) and int(at.max()) >= len(data):
        raise PayloadError("an Avro value is cut off")
    raw, at = read_varints(data, at)
    numbers: Ints = ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1)
    return numbers, at


def unreadable(writer: AvroNode, target: pa.DataType) -> ValueSchemaError:
    """The error for a writer's type that cannot be read as `target`."""
    return ValueSchemaError(f"what was written as Avro {writer.kind} cannot be read as {target}")


def skip_leaf(writer: AvroNode) -> Read:
    """Skips the value."""
    kind, size = writer.kind, writer.size

    def skip(data: Bytes, at: Ints) -> tuple[object, Ints]:
        if kind in ("int", "long", "enum"):
            return None, zigzags(data, at)[1]
        if kind in ("bytes", "string"):
            sizes, begin = zigzags(data, at)
            return None, begin + np.maximum(sizes, 0)
        return None, at + {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(kind, size)

    return skip


def read_leaf(writer: AvroNode, target: pa.DataType) -> Read:
    """Reads the value as `target`. Raises ValueSchemaError when Avro does not allow that."""
    kind = writer.kind
    if writer.logical and not any(fits(target) for fits in _PROMOTED.get(kind, ())):
        return _logical(writer, target)
    if not any(fits(target) for fits in _PROMOTED.get(kind, ())):
        if kind in ("int", "long") and pa.types.is_temporal(target):
            return _logical(writer, target)
        raise unreadable(writer, target)
    plain = _PLAIN[kind]

    def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
        values, at = plain(writer, data, at)
        return (values if values.type == target else values.cast(target)), at

    return read


def _logical(writer: AvroNode, target: pa.DataType) -> Read:
    """Reads dates, times and decimals. Raises ValueSchemaError when the target is another type."""
    plain = _PLAIN.get(writer.kind)
    if plain is None:
        raise unreadable(writer, target)
    if pa.types.is_decimal(target) and writer.is_decimal:
        return _decimals(writer, target)
    if pa.types.is_date(target) and writer.kind == "int":
        return lambda data, at: _then(
            plain(writer, data, at), lambda days: days.cast(pa.int32()).cast(target)
        )
    factor = _UNIT_TO_US.get(writer.logical.rpartition("-")[2])
    if pa.types.is_timestamp(target) and writer.kind == "long" and factor is not None:
        return lambda data, at: _then(
            plain(writer, data, at), lambda times: pc.multiply(times, factor).cast(target)
        )
    raise unreadable(writer, target)


def _then(read: tuple[pa.Array, Ints], change: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Ints]:
    return change(read[0]), read[1]


def _decimals(writer: AvroNode, target: pa.DataType) -> Read:
    plain = _PLAIN[writer.kind]

    def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
        values, at = plain(writer, data, at)
        numbers = [
            Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-writer.scale)
            for value in values.to_pylist()
        ]
        return pa.array(numbers, pa.decimal128(38, writer.scale)).cast(target), at

    return read


def _read_null(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    return pa.nulls(len(at)), at


def _read_boolean(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    return pa.array(_at(data, at, 1)[:, 0] != 0), at + 1


def _read_int(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    numbers, at = zigzags(data, at)
    return pa.array(numbers.astype(np.int32) if writer.kind == "int" else numbers), at


def _read_float(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    return pa.array(_at(data, at, 4).view("<f4")[:, 0]), at + 4


def _read_double(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    return pa.array(_at(data, at, 8).view("<f8")[:, 0]), at + 8


def _read_bytes(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    sizes, begin = zigzags(data, at)
    behind = begin + sizes
    if (sizes < 0).any() or (len(behind) and int(behind.max()) > len(data)):
        raise PayloadError("an Avro string is cut off")
    return arrays.slices(data, begin, behind), behind


def _read_fixed(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    if len(at) and int(at.max()) + writer.size > len(data):
        raise PayloadError("an Avro value is cut off")
    return arrays.slices(data, at, at + writer.size), at + writer.size


def _read_enum(writer: AvroNode, data: Bytes, at: Ints) -> tuple[pa.Array, Ints]:
    numbers, at = zigzags(data, at)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(writer.symbols):
        raise PayloadError("an Avro enum has no such symbol")
    return pa.array(writer.symbols, pa.string()).take(pa.array(numbers)), at


def _at(data: Bytes, at: Ints, size: int) -> Bytes:
    """`size` bytes at each offset, as a matrix. Raises PayloadError when a value is cut off."""
    if len(at) and int(at.max()) + size > len(data):
        raise PayloadError("an Avro value is cut off")
    found: Bytes = np.ascontiguousarray(data[at[:, None] + np.arange(size)])
    return found


_PLAIN: Final[dict[str, Callable[[AvroNode, Bytes, Ints], tuple[pa.Array, Ints]]]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_int,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_bytes,
    "fixed": _read_fixed,
    "enum": _read_enum,
}
"""Readers of the types without parts, as their own Arrow types."""
