"""What payloads become: columns of their own type, as a schema says.

Values are decoded where they lie in the buffer of their entries; `Values` is the contract, one class for each
format. All are pure: schemas of other versions come from a function that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow.fields import Bools, Bytes, Ints

Column = Callable[[str], pa.Array]
"""Another column of the same messages, by its name."""


class Values(Protocol):
    """Decodes the payloads of messages."""

    @property
    def type(self) -> pa.DataType:
        """What comes out."""

    @property
    def columns(self) -> frozenset[str]:
        """Columns that `decode` asks for."""

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """The values in `data[starts[i]:ends[i]]`, which ascend and do not overlap; null where not present.

        `data` goes on for `fields.PADDING` behind the last one. Raises PayloadError for a value that is
        not what the schema says.
        """


class TextValues:
    """Values are UTF-8, and become strings."""

    type = pa.string()
    columns: frozenset[str] = frozenset()

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """As the contract says. Raises pyarrow's error for what is no UTF-8."""
        values = arrays.slices(data, starts, ends)
        return arrays.with_nulls(values, ~present).cast(pa.string())


def scatter(values: pa.Array, chosen: Bools) -> pa.Array:
    """`values`, which are those of the rows that are chosen, as a column of all rows."""
    if chosen.all():
        return values
    places = np.cumsum(chosen) - 1
    return values.take(pa.array(places, mask=~chosen))
