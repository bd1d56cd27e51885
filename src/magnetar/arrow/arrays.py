"""Builds Arrow arrays from buffers and offsets in them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.columns import EXTRA_TYPES, column_types
from magnetar.arrow.fields import Bools, Bytes, Ints, Spans, parse_fields

ARROW_TYPES: Final = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    EXTRA_TYPES["headers"]: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.string())]))
    ),
    EXTRA_TYPES["encryption"]: pa.struct(
        [
            ("algorithm", pa.string()),
            ("param", pa.binary()),
            (
                "keys",
                pa.list_(pa.field("element", pa.struct([("name", pa.string()), ("value", pa.binary())]))),
            ),
            ("compression", pa.string()),
            ("plain_bytes", pa.int64()),
            ("messages", pa.int32()),
        ]
    ),
}
"""The Arrow types that Spark expects for its types; a test compares them with Spark's own function."""

_BUFFER_BYTES_MAX: Final = (1 << 31) - 1
"""Most bytes of a binary array, whose offsets are signed 32-bit numbers."""


def arrow_schema(columns: Sequence[str], value_type: pa.DataType | None = None) -> pa.Schema:
    """The Arrow schema of these columns, as Spark derives it. `value_type`: type of the value; None:
    binary."""
    types = {name: ARROW_TYPES[kind] for name, kind in column_types().items()}
    if value_type is not None:
        types["value"] = value_type
    return pa.schema([pa.field(name, types[name]) for name in columns])


def slices(buffer: bytes | Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """`buffer[starts[i]:ends[i]]` as a binary array. The slices must ascend and not overlap.

    The gaps between the slices count as elements first, and one `take` drops them, so that Arrow does all
    copying.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    assert len(buffer) <= _BUFFER_BYTES_MAX
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    data = pa.py_buffer(buffer)
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    return with_gaps.take(pa.array(np.arange(0, 2 * count - 1, 2)))


def with_nulls(values: pa.Array, nulls: Bools) -> pa.Array:
    """`values`, but null where `nulls` is true."""
    if not nulls.any():
        return values
    return pc.if_else(pa.array(nulls), pa.scalar(None, values.type), values)


def timestamps(times_ms: Ints, nulls: Bools | None) -> pa.Array:
    """Unix milliseconds as timestamps."""
    values = pa.array(times_ms * 1000).cast(ARROW_TYPES["timestamp"])
    return values if nulls is None else with_nulls(values, nulls)


def join(heads: pa.Array, numbers: Ints) -> pa.Array:
    """Each head followed by its number in decimal."""
    return pc.binary_join_element_wise(heads, pa.array(numbers).cast(pa.string()), "")


def decode_base64(keys: pa.Array, chosen: Bools) -> pa.Array:
    """`keys` with the chosen ones decoded; a key that is not base64 stays unchanged."""
    decoded = keys.to_pylist()
    for row in np.flatnonzero(chosen).tolist():
        try:
            decoded[row] = base64.b64decode(decoded[row], validate=True)
        except binascii.Error:  # a key that is marked as base64 and is not stays unchanged
            continue
    return pa.array(decoded, pa.binary())


def string_maps(array: Bytes, spans: Spans, count: int) -> pa.Array:
    """Maps from KeyValue messages (1 key, 2 value); row `spans.rows[i]` has the i-th message."""
    offsets, keys, values = _pairs(array, spans, count)
    return pa.MapArray.from_arrays(offsets, keys, values)


def string_pairs(array: Bytes, spans: Spans, count: int) -> pa.Array:
    """As `string_maps`, but as lists of pairs, which keep repeated keys."""
    offsets, keys, values = _pairs(array, spans, count)
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    return pa.ListArray.from_arrays(offsets, pairs, type=ARROW_TYPES[EXTRA_TYPES["headers"]])


def _pairs(array: Bytes, spans: Spans, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(spans.rows, minlength=count), out=offsets[1:])
    pairs = parse_fields(array, spans.starts, spans.ends, (1, 2))
    texts = []
    for field in (1, 2):
        starts, ends, _ = pairs.last_spans(field)
        texts.append(slices(array, starts, ends).cast(pa.string()))
    keys, values = texts
    return pa.array(offsets), keys, values
