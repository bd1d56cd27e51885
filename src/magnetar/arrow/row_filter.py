"""Filters rows where that is cheapest.

Publish time belongs to entries: those outside the range are not decompressed or opened. Keys belong to
messages. Exactly the rows that a filter excludes are left out; the order of entries is not used, as the
clocks of producers differ.
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
    """What has to hold for a row; None asks nothing. Can be pickled."""

    published_from_ms: int | None = None
    """Unix ms of the first publish time that is wanted."""
    published_until_ms: int | None = None
    """The last one, itself wanted."""
    keys: frozenset[bytes] | None = None

    def and_keys(self, keys: frozenset[bytes] | None) -> RowFilter:
        """The same, and one of these keys unless None."""
        if keys is None:
            return self
        return replace(self, keys=keys if self.keys is None else self.keys & keys)

    @property
    def columns(self) -> frozenset[str]:
        """Columns that have to be read for it."""
        times = self.published_from_ms is not None or self.published_until_ms is not None
        return frozenset((["publish_time"] if times else []) + (["key"] if self.keys is not None else []))

    def entries(self, fields: Fields) -> Bools:
        """Which entries may have rows that are wanted."""
        times = fields.numbers(number.PUBLISH_TIME)
        wanted = np.ones(len(times), np.bool_)
        if self.published_from_ms is not None:
            wanted &= times >= self.published_from_ms
        if self.published_until_ms is not None:
            wanted &= times <= self.published_until_ms
        return wanted

    def messages(self, build: MessageColumns) -> Bools | None:
        """Which messages are wanted; None for all."""
        if self.keys is None:
            return None
        found = pc.is_in(build.key().cast(pa.binary()), value_set=pa.array(sorted(self.keys), pa.binary()))
        return cast(Bools, found.to_numpy(zero_copy_only=False))
