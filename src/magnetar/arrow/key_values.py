"""Decodes values of KeyValue schemas to a struct of key and value, each by its own schema.

    INLINE       key size i32 | key | value size i32 | value; a size of -1 stands for null
    SEPARATED    the key is the message's key, the value its payload

Source: KeyValueSchema of Pulsar's Java client.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow.fields import PADDING, Bools, Bytes, Ints, big_endian_u32
from magnetar.arrow.values import Column, Values
from magnetar.client.errors import PayloadError


class BytesValues:
    """Leaves values as bytes."""

    type = pa.binary()
    columns: frozenset[str] = frozenset()

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """As the contract of `Values` says."""
        return arrays.with_nulls(arrays.slices(data, starts, ends), ~present)


class KeyValues:
    """Decodes key and value of each message."""

    def __init__(self, key: Values, value: Values, *, separated: bool) -> None:
        self._key, self._value = key, value
        self._separated = separated
        self.type = pa.struct([("key", key.type), ("value", value.type)])
        self.columns = key.columns | value.columns | (frozenset(("key",)) if separated else frozenset())

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError for sizes beyond the end of a value.

        A separated message without a payload has a key and a null value.
        """
        if self._separated:
            keys = column("key")
            joined = b"".join((*(key or b"" for key in keys.to_pylist()), PADDING))
            lengths = np.array([len(key or b"") for key in keys.to_pylist()], np.int64)
            stops = np.cumsum(lengths)
            there = keys.is_valid().to_numpy(zero_copy_only=False)
            places = np.frombuffer(joined, np.uint8)
            parts = [
                self._key.decode(places, stops - lengths, stops, there, column),
                self._value.decode(data, starts, ends, present, column),
            ]
            return pa.StructArray.from_arrays(parts, fields=list(self.type))
        where = np.where(present, starts, 0)
        key_at, key_end, has_key = _sized(data, where, present)
        value_at, value_end, has_value = _sized(data, np.where(present, key_end, 0), present)
        if (present & (value_end > ends)).any():
            raise PayloadError("a value of a KeyValue schema is shorter than its sizes say")
        parts = [
            self._key.decode(data, *_ascending(key_at, key_end, has_key), has_key, column),
            self._value.decode(data, *_ascending(value_at, value_end, has_value), has_value, column),
        ]
        both = pa.StructArray.from_arrays(parts, fields=list(self.type))
        return arrays.with_nulls(both, ~present)


def _sized(data: Bytes, at: Ints, present: Bools) -> tuple[Ints, Ints, Bools]:
    """Start and end of the bytes after a size, and whether they are present. Raises PayloadError."""
    if len(at) and int(at.max()) + 4 > len(data):
        raise PayloadError("a value of a KeyValue schema is cut off")
    sizes = big_endian_u32(data, at)
    there = present & (sizes < 1 << 31)
    return at + 4, at + 4 + np.where(there, sizes, 0), there


def _ascending(starts: Ints, ends: Ints, present: Bools) -> tuple[Ints, Ints]:
    """The offsets, with rows without a value set so that all ascend."""
    if present.all():
        return starts, ends
    ends = np.maximum.accumulate(np.where(present, ends, 0))
    return np.where(present, starts, ends), ends
