"""Handles values that do not match their schema: raises an error with the first one's message id, sets all to
null, or keeps each of them beside its row.

Values are decoded thousands at a time, and a broken one fails all of them. Halving finds it; batches without
broken values have no further cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, Values, scatter
from magnetar.base.names import TopicName
from magnetar.client.errors import PayloadError

_BROKEN: Final = (PayloadError, ValueSchemaError, pa.ArrowInvalid, UnicodeDecodeError, ValueError)
"""The errors of decoders for broken values."""

_LETTER_COLUMNS: Final = {
    "message_id": pa.string(),
    "key": pa.binary(),
    "key_is_string": pa.bool_(),
    "event_time": arrays.ARROW_TYPES["timestamp"],
    "properties": arrays.ARROW_TYPES["map<string,string>"],
}
"""Columns of a broken value besides payload and error."""

LETTER: Final = pa.struct([("payload", pa.binary()), ("error", pa.string()), *_LETTER_COLUMNS.items()])
"""A broken value with all fields needed to send its message to another topic. Null for a sound value."""


class PlacedValues:
    """Decodes with another decoder, and names the message of a broken value."""

    def __init__(self, values: Values, topic: TopicName, *, permissive: bool) -> None:
        """`permissive`: broken values become null instead of an error."""
        self._values = values
        self._topic = topic
        self._permissive = permissive
        self.type = values.type
        self.columns = values.columns | {"message_id"}

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError that names the message, unless permissive."""
        search = _Search(self._values, data, starts, ends, column)
        found, errors = search.decoded(present, stop_at_first=not self._permissive)
        for row, error in errors.items() if not self._permissive else ():
            place = column("message_id")[row].as_py()
            raise PayloadError(
                f"the value of message {place} of {self._topic} is not what its schema says: {error}. Set"
                " mode=permissive to read such values as null"
            ) from error
        return found


class RescuedValues:
    """Decodes with another decoder, and keeps broken values. Its type is a struct of `value` and `broken`,
    which is a LETTER."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self.type = pa.struct([("value", values.type), ("broken", LETTER)])
        self.columns = values.columns | _LETTER_COLUMNS.keys()

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """As the contract of `Values` says."""
        search = _Search(self._values, data, starts, ends, column)
        found, errors = search.decoded(present)
        broken = pa.nulls(len(present), LETTER)
        if errors:
            chosen = np.zeros(len(present), np.bool_)
            chosen[list(errors)] = True
            parts = [
                arrays.slices(data, starts[chosen], ends[chosen]),
                pa.array([str(error) for error in errors.values()], pa.string()),
                *(column(name).filter(pa.array(chosen)).cast(kind) for name, kind in _LETTER_COLUMNS.items()),
            ]
            broken = scatter(pa.StructArray.from_arrays(parts, fields=list(LETTER)), chosen)
        return pa.StructArray.from_arrays([found, broken], fields=list(self.type))


class _Search:
    """The values of one call."""

    def __init__(self, values: Values, data: Bytes, starts: Ints, ends: Ints, column: Column) -> None:
        self._values = values
        self._data, self._starts, self._ends = data, starts, ends
        self._column = column

    def decoded(
        self, present: Bools, *, stop_at_first: bool = False
    ) -> tuple[pa.Array | None, dict[int, Exception]]:
        """The values, null where they are broken, and the error of each broken row, ascending.

        With `stop_at_first`, when a value is broken, returns no values and only the first error.
        """
        whole = self._tried(present)
        if not isinstance(whole, Exception):
            return whole, {}
        errors: dict[int, Exception] = {}
        for row, error in self._broken(np.flatnonzero(present), len(present)):
            errors[row] = error
            if stop_at_first:
                return None, errors
        sound = present.copy()
        sound[list(errors)] = False
        rest = self._tried(sound)
        if isinstance(rest, Exception):
            # Each value alone can be decoded, but not all together: no value is broken.
            raise rest
        return rest, errors

    def _tried(self, chosen: Bools) -> pa.Array | Exception:
        try:
            return self._values.decode(self._data, self._starts, self._ends, chosen, self._column)
        except _BROKEN as error:
            return error

    def _broken(self, rows: Ints, count: int) -> Iterator[tuple[int, Exception]]:
        """The broken rows among these, in order, with their errors."""
        chosen = np.zeros(count, np.bool_)
        chosen[rows] = True
        found = self._tried(chosen)
        if not isinstance(found, Exception):
            return
        if len(rows) == 1:
            yield int(rows[0]), found
            return
        yield from self._broken(rows[: len(rows) // 2], count)
        yield from self._broken(rows[len(rows) // 2 :], count)
