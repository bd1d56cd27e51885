"""Presents several objects as one range of bytes, for a call of the worker that needs all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from magnetar.tiered.parquet.parquet_history import AsyncByteSource, Footer


class JoinedSource:
    """See `AsyncByteSource`: each object begins where the one before it ends."""

    def __init__(self, sources: Sequence[AsyncByteSource]) -> None:
        """`sources`: at least one."""
        self._sources = sources
        self._starts = [0, *accumulate(source.size for source in sources)]

    @property
    def name(self) -> str:
        return f"{len(self._sources)} objects from {self._sources[0].name} on"

    @property
    def size(self) -> int:
        return self._starts[-1]

    @property
    def path(self) -> str | None:
        return None

    @property
    def footer(self) -> Footer | None:
        return None

    async def read_at(self, offset: int, length: int) -> bytes:
        """The range must lie in one object."""
        number = bisect_right(self._starts, offset) - 1
        return await self._sources[number].read_at(offset - self._starts[number], length)
