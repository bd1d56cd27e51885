"""Values of which some are not what their schema says: the first is named by its message, all become null, or
each is kept beside its place.

Values are decoded thousands at a time, and one that is broken breaks them all. Which one it was is found by
halving: only then does it cost anything.
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
"""What decoders raise of values."""

_LETTER_COLUMNS: Final = {
    "message_id": pa.string(),
    "key": pa.binary(),
    "key_is_string": pa.bool_(),
    "event_time": arrays.ARROW_TYPES["timestamp"],
    "properties": arrays.ARROW_TYPES["map<string,string>"],
}
"""What is known of a broken value beside its payload."""

LETTER: Final = pa.struct([("payload", pa.binary()), ("error", pa.string()), *_LETTER_COLUMNS.items()])
"""A broken value: all that its message needs to be sent elsewhere. Null for a sound one."""


class PlacedValues:
    """Decodes as another one does."""

    def __init__(self, values: Values, topic: TopicName, *, permissive: bool) -> None:
        """`permissive`: values that are broken are null."""
        self._values = values
        self._topic = topic
        self._permissive = permissive
        self.type = values.type
        self.columns = values.columns | {"message_id"}

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """As the contract of `Values` says. Raises PayloadError that names the message, unless permissive."""
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
    """Decodes as another one does, and keeps what is broken: a struct of `value` and `broken`, a LETTER."""

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
    """One call's values."""

    def __init__(self, values: Values, data: Bytes, starts: Ints, ends: Ints, column: Column) -> None:
        self._values = values
        self._data, self._starts, self._ends = data, starts, ends
        self._column = column

    def decoded(
        self, present: Bools, *, stop_at_first: bool = False
    ) -> tuple[pa.Array | None, dict[int, Exception]]:
        """The values, null where they are broken; rows of those that are, ascending, and why.

        With `stop_at_first` there are no values when one is broken, and of the broken ones the first.
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
            # Each alone is as it should be, and not all together: that is no fault of a value.
            raise rest
        return rest, errors

    def _tried(self, chosen: Bools) -> pa.Array | Exception:
        try:
            return self._values.decode(self._data, self._starts, self._ends, chosen, self._column)
        except _BROKEN as error:
            return error

    def _broken(self, rows: Ints, count: int) -> Iterator[tuple[int, Exception]]:
        """The rows among these that cannot be decoded, in order, and why."""
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
