"""Survivors that are appended together: neighbours in one run, so their indexes need no telling. Pure."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.entries import EntryRun

Append = Callable[[list[bytes], list[int] | None, int, int], object]
"""Entries, messages of each (None: one), index of the first message, broker time, Unix ms."""


class SurvivorGroup:
    """The group that grows just now."""

    __slots__ = ("_append", "_counts", "_entries", "_first_index", "_index", "_offset", "_run", "size_bytes")

    def __init__(self, append: Append) -> None:
        """`append` takes each group when it is complete."""
        self.size_bytes = 0
        """Bytes of the group."""
        self._append = append
        self._run: EntryRun | None = None
        self._offset = 0
        """Offset of the next entry of the run, whose message has the index `_index`."""
        self._index = 0
        self._first_index = 0
        self._entries: list[bytes] = []
        self._counts: list[int] = []

    def add(self, run: EntryRun, offset: int, stored: bytes) -> None:
        """Takes the next survivor, the entry at `offset` of `run`; `stored` is what is appended of it."""
        if run is not self._run or offset != self._offset:
            self.end()
            if run is not self._run:
                self._run, self._offset, self._index = run, 0, run.base_index
            assert offset >= self._offset, "survivors come in their order"
            skipped = range(self._offset, offset)
            self._index += len(skipped) if run.counts is None else sum(run.counts[self._offset : offset])
            self._first_index = self._index
        count = run.count_of(offset)
        self._entries.append(stored)
        self._counts.append(count)
        self._offset, self._index = offset + 1, self._index + count
        self.size_bytes += len(stored)

    def end(self) -> None:
        """Appends what is there; the next survivor begins a group."""
        run = self._run
        if run is None or not self._entries:
            return
        assert len(self._counts) == len(self._entries)
        counts = None if run.counts is None else self._counts
        self._append(self._entries, counts, self._first_index, run.broker_time_ms)
        self._entries, self._counts, self.size_bytes = [], [], 0
        self._first_index = self._index
