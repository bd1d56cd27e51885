"""Redelivery counts of the entries that are not acknowledged and were redelivered at least once.

Stored form, one record per entry, little-endian:
    ledger i64 | entry i64 | count u32
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from magnetar.base.ids import EARLIEST, Position

_RECORD: Final = struct.Struct("<qqI")
_COUNT_MAX: Final = (1 << 32) - 1


class Redeliveries:
    """Counts by position, and the positions whose counts changed since they were last taken."""

    __slots__ = ("_counts", "_fresh", "_last")

    def __init__(self) -> None:
        self._counts: dict[Position, int] = {}
        self._fresh: set[Position] = set()
        # Upper bound of the positions in the table.
        self._last = EARLIEST

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def counts(self) -> Mapping[Position, int]:
        """All counts; a missing entry has 0."""
        return self._counts

    def count(self, position: Position) -> int:
        """How often the entry was redelivered."""
        return self._counts.get(position, 0)

    def may_hold_from(self, position: Position) -> bool:
        """Whether any entry >= `position` may have a count; False is certain."""
        return bool(self._counts) and self._last >= position

    def add(self, position: Position) -> None:
        """Counts one more redelivery of the entry."""
        self._counts[position] = min(self._counts.get(position, 0) + 1, _COUNT_MAX)
        self._fresh.add(position)
        if position > self._last:
            self._last = position

    def discard(self, positions: Iterable[Position]) -> None:
        """Removes the counts of acknowledged entries."""
        for position in positions:
            self._counts.pop(position, None)

    def keep(self, wanted: Callable[[Position], bool]) -> None:
        """Keeps only the wanted entries."""
        self.discard([position for position in self._counts if not wanted(position)])

    def update(self, counts: Mapping[Position, int]) -> None:
        """Adds stored counts."""
        self._counts.update(counts)
        self._last = max(self._counts, default=EARLIEST)

    def clear(self) -> None:
        """Removes all counts."""
        self._counts.clear()
        self._fresh.clear()
        self._last = EARLIEST

    def take_changed(self) -> dict[Position, int]:
        """Counts that changed since the last call, of entries that still have one."""
        fresh, self._fresh = self._fresh, set()
        return {position: count for position in fresh if (count := self._counts.get(position))}


def encode(counts: Mapping[Position, int]) -> bytes:
    """The stored form; b"" when there are none."""
    return b"".join(
        _RECORD.pack(ledger_id, entry_id, count) for (ledger_id, entry_id), count in counts.items()
    )


def decode(data: bytes) -> dict[Position, int]:
    """The inverse of `encode`. Raises ValueError when the length is not a multiple of a record."""
    if len(data) % _RECORD.size:
        raise ValueError(f"{len(data)} bytes are not a number of redelivery counts")
    return {Position(ledger_id, entry_id): count for ledger_id, entry_id, count in _RECORD.iter_unpack(data)}
