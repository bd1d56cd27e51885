"""Decodes values of Pulsar's schemas without a definition: numbers, times, texts.

| Schema | Bytes | Arrow |
|---|---|---|
| INT8, INT16, INT32, INT64 | big-endian | int8 to int64 |
| FLOAT, DOUBLE | big-endian | float32, float64 |
| BOOLEAN | 1: not 0 | bool |
| STRING | UTF-8 | string |
| DATE, TIMESTAMP | Unix ms, 8 | timestamp[us, UTC] |
| TIME | ms of the day, 8 | int64 |
| INSTANT | seconds 8, nanoseconds 4 | timestamp[us, UTC] |
| LOCAL_DATE | days, 8 | date32 |
| LOCAL_TIME | nanoseconds of the day, 8 | int64 |
| LOCAL_DATE_TIME | days 8, nanoseconds of the day 8 | timestamp[us] |

Source: the schemas of Pulsar's Java client.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, scatter
from magnetar.client.errors import PayloadError

_UTC: Final = pa.timestamp("us", tz="UTC")
_DAY_US: Final = 86_400_000_000

PLAIN_TYPES: Final[dict[str, tuple[int, str, pa.DataType]]] = {
    "INT8": (1, ">i1", pa.int8()),
    "INT16": (2, ">i2", pa.int16()),
    "INT32": (4, ">i4", pa.int32()),
    "INT64": (8, ">i8", pa.int64()),
    "FLOAT": (4, ">f4", pa.float32()),
    "DOUBLE": (8, ">f8", pa.float64()),
    "BOOLEAN": (1, ">i1", pa.bool_()),
    "DATE": (8, ">i8", _UTC),
    "TIMESTAMP": (8, ">i8", _UTC),
    "TIME": (8, ">i8", pa.int64()),
    "INSTANT": (12, ">i8", _UTC),
    "LOCAL_DATE": (8, ">i8", pa.date32()),
    "LOCAL_TIME": (8, ">i8", pa.int64()),
    "LOCAL_DATE_TIME": (16, ">i8", pa.timestamp("us")),
}
"""By schema: bytes of a value, NumPy type of its first number, and the Arrow type."""


class PlainValues:
    """Decodes values of one of these schemas, which all have one size."""

    columns: frozenset[str] = frozenset()

    def __init__(self, name: str) -> None:
        """`name` is one of PLAIN_TYPES."""
        self._name = name
        self._size, self._number, self.type = PLAIN_TYPES[name]

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError for values of another size."""
        at = starts[present]
        wrong = ends[present] - at != self._size
        if wrong.any():
            raise PayloadError(f"a value of schema {self._name} has not {self._size} bytes")
        raw = np.ascontiguousarray(data[at[:, None] + np.arange(self._size)])
        width = np.dtype(self._number).itemsize
        first = np.ascontiguousarray(raw[:, :width]).view(self._number)[:, 0]
        return scatter(self._column(first.astype(first.dtype.newbyteorder("=")), raw), present)

    def _column(self, first: Ints, raw: Bytes) -> pa.Array:
        name = self._name
        if name == "BOOLEAN":
            return pa.array(first != 0)
        if name in ("DATE", "TIMESTAMP"):
            return pa.array(first * 1000).cast(self.type)
        if name == "INSTANT":
            nanoseconds = np.ascontiguousarray(raw[:, 8:]).view(">i4")[:, 0].astype(np.int64)
            return pa.array(first * 1_000_000 + nanoseconds // 1000).cast(self.type)
        if name == "LOCAL_DATE":
            return pa.array(first.astype(np.int32)).cast(self.type)
        if name == "LOCAL_DATE_TIME":
            nanoseconds = np.ascontiguousarray(raw[:, 8:]).view(">i8")[:, 0].astype(np.int64)
            return pa.array(first * _DAY_US + nanoseconds // 1000).cast(self.type)
        return pa.array(first)
