"""The newest entries of all logs, kept in memory for readers near the end.

One budget in bytes of memory serves every log; the oldest run of any log is evicted first. Runs are kept as
they were appended and shared by all readers, not copied.

Pure: no input or output, no time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position

_COMPACT_AT = 64
"""Evicted slots at the front of a list that are tolerated before it is cut; keeps eviction O(1)."""

ENTRY_OVERHEAD_BYTES: Final = 48
"""Memory of an entry beyond its bytes: the object's head (33 bytes, rounded up) and its slot in the run's
list. Otherwise small messages would fill twice the budget."""

RUN_OVERHEAD_BYTES: Final = 400
"""Memory of a run beyond its entries: the object, its list, its numbers and its slots here. Otherwise a few
messages to each of many topics, runs of one message, would fill several times the budget."""


def memory_of(run: EntryRun) -> int:
    """Bytes that a run takes here."""
    entries = run.entries
    return sum(map(len, entries)) + RUN_OVERHEAD_BYTES + ENTRY_OVERHEAD_BYTES * len(entries)


class CacheBudget:
    """Bytes that the tail caches of all logs may hold together."""

    __slots__ = ("_order", "_stale", "bytes_max", "bytes_used")

    bytes_max: int
    bytes_used: int
    """Entry bytes in all caches; at most `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max >= 0
        self.bytes_max = bytes_max
        self.bytes_used = 0
        # One element per cached run, oldest first; those of cleared caches are skipped.
        self._order: deque[TailCache] = deque()
        self._stale = 0

    def added(self, cache: TailCache, size_bytes: int) -> None:
        """A cache has added a run; evicts the oldest runs until all fit."""
        self._order.append(cache)
        self.bytes_used += size_bytes
        while self.bytes_used > self.bytes_max:
            oldest = self._order.popleft()
            if oldest.cleared:
                self._stale -= 1
            else:
                self.bytes_used -= oldest.evict()

    def released(self, runs: int, size_bytes: int) -> None:
        """A cache was cleared."""
        self.bytes_used -= size_bytes
        self._stale += runs
        if self._stale > len(self._order) // 2:
            self._order = deque(cache for cache in self._order if not cache.cleared)
            self._stale = 0


def _first_of(run: EntryRun | None) -> Position:
    assert run is not None, "an evicted run is asked for"
    return Position(run.ledger_id, run.first_entry)


class TailCache:
    """The newest durable runs of one log, without gaps, as far as the budget allows."""

    __slots__ = ("_budget", "_head", "_runs", "_sizes", "cleared", "size_bytes")

    cleared: bool
    """The log was closed; nothing can be added."""
    size_bytes: int

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._runs: list[EntryRun | None] = []
        self._sizes: list[int] = []
        # Slots before it are evicted.
        self._head = 0
        self.cleared = False
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._runs) - self._head

    @property
    def first_position(self) -> Position | None:
        """Position of the first cached entry; None when the cache is empty."""
        return _first_of(self._runs[self._head]) if self._head < len(self._runs) else None

    def add(self, run: EntryRun, size_bytes: int) -> None:
        """Adds the run after the newest one; evicts older ones of any log if necessary."""
        if self.cleared:
            return
        self._runs.append(run)
        self._sizes.append(size_bytes)
        self.size_bytes += size_bytes
        self._budget.added(self, size_bytes)

    def evict(self) -> int:
        """Drops the oldest run; returns its bytes."""
        head = self._head
        size_bytes = self._sizes[head]
        self._runs[head] = None
        self._head = head = head + 1
        if head > _COMPACT_AT and head * 2 > len(self._runs):
            del self._runs[:head], self._sizes[:head]
            self._head = 0
        self.size_bytes -= size_bytes
        return size_bytes

    def clear(self) -> None:
        """Drops everything for good."""
        if not self.cleared:
            self.cleared = True
            runs, size_bytes = len(self), self.size_bytes
            self._runs, self._sizes = [], []
            self._head = self.size_bytes = 0
            self._budget.released(runs, size_bytes)

    def runs_from(self, position: Position) -> Iterator[tuple[EntryRun, int]]:
        """Runs with their bytes from the one that holds `position` or the first after it.

        The first may begin before `position`, which must be >= `first_position`.
        """
        index = self._index_of(position)
        if index < len(self._runs):
            run = self._runs[index]
            assert run is not None
            if Position(run.ledger_id, run.last_entry) < position:
                # The position lies between two ledgers, or after all entries.
                index += 1
        for at in range(index, len(self._runs)):
            run = self._runs[at]
            assert run is not None
            yield run, self._sizes[at]

    def _index_of(self, position: Position) -> int:
        """Index of the last run that begins at or before `position`; the first one when none does."""
        runs = self._runs
        # A reader at the end of the log asks for the newest run.
        if len(runs) > self._head and _first_of(runs[-1]) <= position:
            return len(runs) - 1
        return max(self._head, bisect_right(runs, position, self._head, key=_first_of) - 1)

    def check(self) -> None:
        """Asserts the invariants."""
        live = [run for run in self._runs[self._head :] if run is not None]
        assert len(live) == len(self)
        assert self.size_bytes == sum(self._sizes[self._head :])
        firsts = [_first_of(run) for run in live]
        assert firsts == sorted(firsts)
        assert self._budget.bytes_used <= self._budget.bytes_max
