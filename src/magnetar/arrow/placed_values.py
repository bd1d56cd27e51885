"""Values of which some are not what their schema says: the first is named by its message, or all become null.

Values are decoded thousands at a time, and one that is broken breaks them all. Which one it was is found by
halving: only then does it cost anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, Values
from magnetar.base.names import TopicName
from magnetar.client.errors import PayloadError

_BROKEN: Final = (PayloadError, ValueSchemaError, pa.ArrowInvalid, UnicodeDecodeError, ValueError)
"""What decoders raise of values."""


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

        def tried(chosen: Bools) -> pa.Array | Exception:
            try:
                return self._values.decode(data, starts, ends, chosen, column)
            except _BROKEN as error:
                return error

        whole = tried(present)
        if not isinstance(whole, Exception):
            return whole

        def broken(rows: Ints) -> Iterator[tuple[int, Exception]]:
            """The rows among these that cannot be decoded, in order, and why."""
            chosen = np.zeros(len(present), np.bool_)
            chosen[rows] = True
            found = tried(chosen)
            if not isinstance(found, Exception):
                return
            if len(rows) == 1:
                yield int(rows[0]), found
                return
            yield from broken(rows[: len(rows) // 2])
            yield from broken(rows[len(rows) // 2 :])

        sound = present.copy()
        for row, error in broken(np.flatnonzero(present)):
            if not self._permissive:
                place = column("message_id")[row].as_py()
                raise PayloadError(
                    f"the value of message {place} of {self._topic} is not what its schema says: {error}. Set"
                    " mode=permissive to read such values as null"
                ) from error
            sound[row] = False
        rest = tried(sound)
        if isinstance(rest, Exception):
            # Each alone is as it should be, and not all together: that is no fault of a value.
            raise rest
        return rest
