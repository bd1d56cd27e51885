"""Which entries are to be sent again."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from magnetar.base.ids import Position


class ReplayQueue:
    """Positions to be sent again, smallest first, each held once."""

    __slots__ = ("_heap", "_held", "_unsorted")

    def __init__(self) -> None:
        self._heap: list[Position] = []
        self._held: set[Position] = set()
        self._unsorted = False
        """Whether the list must be sorted before its use as a heap: many entries return together and are read
        once."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, position: Position) -> bool:
        return position in self._held

    def add(self, position: Position) -> None:
        if position not in self._held:
            self._held.add(position)
            if self._unsorted:
                self._heap.append(position)
            else:
                heapq.heappush(self._heap, position)

    def add_all(self, positions: Collection[Position]) -> None:
        """Adds many, none of which is held."""
        self._held.update(positions)
        self._heap += positions
        self._unsorted = True

    def discard(self, position: Position) -> None:
        self._held.discard(position)

    def clear(self) -> None:
        self._heap.clear()
        self._held.clear()
        self._unsorted = False

    def first(self) -> Position | None:
        """The smallest position, kept."""
        heap = self._heap
        if self._unsorted:
            # Mostly ordered pieces, which sorting merges; a sorted list is a heap.
            heap.sort()
            self._unsorted = False
        while heap and heap[0] not in self._held:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def first_range(self, count_max: int) -> tuple[Position, int] | None:
        """The smallest position and how many follow it without a gap, kept."""
        first = self.first()
        if first is None:
            return None
        count = 1
        while count < count_max and Position(first.ledger_id, first.entry_id + count) in self._held:
            count += 1
        return first, count
