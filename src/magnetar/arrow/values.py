"""Decodes payloads to columns of the type that a schema gives.

Values are decoded in place, in the buffer of their entries. `Values` is the contract; each format has a
class. All are pure: a function argument returns the schemas of other versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow.fields import Bools, Bytes, Ints

Column = Callable[[str], pa.Array]
"""Returns another column of the same messages, by its name."""


class Values(Protocol):
    """Decodes the payloads of messages."""

    @property
    def type(self) -> pa.DataType:
        """The type of the decoded column."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that `decode` requests."""

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """The values in `data[starts[i]:ends[i]]`, which must ascend and not overlap; null where not
        `present`.

        `data` must have `fields.PADDING` after the last value. Raises PayloadError for a value that does not
        match the schema.
        """


class TextValues:
    """Decodes UTF-8 to strings."""

    type = pa.string()
    columns: frozenset[str] = frozenset()

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises pyarrow's error for a value that is not UTF-8."""
        values = arrays.slices(data, starts, ends)
        return arrays.with_nulls(values, ~present).cast(pa.string())


def scatter(values: pa.Array, chosen: Bools) -> pa.Array:
    """The values of the chosen rows as a column of all rows; null elsewhere."""
    if chosen.all():
        return values
    places = np.cumsum(chosen) - 1
    return values.take(pa.array(places, mask=~chosen))
