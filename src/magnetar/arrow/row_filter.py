"""Filters rows as early as possible.

The publish time belongs to entries: entries outside the range are neither decompressed nor opened. Keys
belong to messages. A filter drops exactly the rows that it excludes; it does not use the order of entries,
because the clocks of producers differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow import metadata_fields as number
from magnetar.arrow.fields import Bools, Fields

if TYPE_CHECKING:
    from magnetar.arrow.message_columns import MessageColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """The conditions for a row; None: no condition. Can be pickled."""

    published_from_ms: int | None = None
    """First wanted publish time, Unix ms, inclusive; None: no bound."""
    published_until_ms: int | None = None
    """Last wanted publish time, Unix ms, inclusive; None: no bound."""
    keys: frozenset[bytes] | None = None

    def and_keys(self, keys: frozenset[bytes] | None) -> RowFilter:
        """The filter that also requires one of these keys; None: no further condition."""
        if keys is None:
            return self
        return replace(self, keys=keys if self.keys is None else self.keys & keys)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter needs."""
        times = self.published_from_ms is not None or self.published_until_ms is not None
        return frozenset((["publish_time"] if times else []) + (["key"] if self.keys is not None else []))

    def entries(self, fields: Fields) -> Bools:
        """The entries that may have wanted rows."""
        times = fields.numbers(number.PUBLISH_TIME)
        wanted = np.ones(len(times), np.bool_)
        if self.published_from_ms is not None:
            wanted &= times >= self.published_from_ms
        if self.published_until_ms is not None:
            wanted &= times <= self.published_until_ms
        return wanted

    def messages(self, build: MessageColumns) -> Bools | None:
        """The wanted messages; None when all are wanted."""
        if self.keys is None:
            return None
        found = pc.is_in(build.key().cast(pa.binary()), value_set=pa.array(sorted(self.keys), pa.binary()))
        return cast(Bools, found.to_numpy(zero_copy_only=False))
