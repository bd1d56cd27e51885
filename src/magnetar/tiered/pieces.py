"""Keeps the pieces of copies that were read, within a budget of memory. Pure.

A piece is the result of one read of a segment: consecutive entries. Pieces of one copy overlap only where two
readers that began at different places read the same entries.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from uuid import UUID

from magnetar.base.entries import EntryRun, cut
from magnetar.base.ids import Position
from magnetar.tiered.context import OffloadedCopy

ENTRY_OVERHEAD_BYTES = 48
"""Bytes of memory that an entry takes besides its content."""

_Copied = tuple[UUID, int]
"""Attempt and ledger; several ledgers may share an attempt."""


class Piece:
    """Consecutive entries of one copy."""

    __slots__ = ("_sizes", "first_entry", "last_entry", "memory_bytes", "runs")

    def __init__(self, runs: list[EntryRun]) -> None:
        self.runs = runs
        self.first_entry = runs[0].first_entry
        self.last_entry = runs[-1].last_entry
        self._sizes = [run.size_bytes for run in runs]
        count = self.last_entry - self.first_entry + 1
        self.memory_bytes = sum(self._sizes) + count * ENTRY_OVERHEAD_BYTES

    def cut(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """Entries from `first` to `last`, as many as fit into `bytes_max`, at least one."""
        start = Position(self.runs[0].ledger_id, first)
        index = bisect_right(self.runs, first, key=lambda run: run.first_entry) - 1
        pairs = zip(self.runs[index:], self._sizes[index:], strict=True)
        return cut(pairs, start, bytes_max, last - first + 1)


class PieceCache:
    """The most recently used pieces of all copies."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._pieces: OrderedDict[tuple[_Copied, int], Piece] = OrderedDict()
        self._firsts: dict[_Copied, list[int]] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def find(self, copy: OffloadedCopy, entry_id: int) -> Piece | None:
        """The piece that holds an entry, and marks it as used; None when no piece does."""
        copied = copy.context.attempt, copy.ledger_id
        firsts = self._firsts.get(copied)
        if not firsts:
            return None
        index = bisect_right(firsts, entry_id) - 1
        if index < 0:
            return None
        key = (copied, firsts[index])
        piece = self._pieces[key]
        if entry_id > piece.last_entry:
            return None
        self._pieces.move_to_end(key)
        return piece

    def add(self, copy: OffloadedCopy, piece: Piece) -> None:
        """Keeps a piece and drops those used longest ago. A piece larger than the budget is not kept."""
        copied = copy.context.attempt, copy.ledger_id
        key = (copied, piece.first_entry)
        if piece.memory_bytes > self.bytes_max:
            return
        if key in self._pieces:
            self._drop(key)
        self._pieces[key] = piece
        insort(self._firsts.setdefault(copied, []), piece.first_entry)
        self.bytes_used += piece.memory_bytes
        while self.bytes_used > self.bytes_max:
            self._drop(next(iter(self._pieces)))

    def forget(self, attempt: UUID) -> None:
        """Drops all pieces of an attempt."""
        for copied in [each for each in self._firsts if each[0] == attempt]:
            for first in list(self._firsts[copied]):
                self._drop((copied, first))

    def _drop(self, key: tuple[_Copied, int]) -> None:
        copied, first = key
        self.bytes_used -= self._pieces.pop(key).memory_bytes
        firsts = self._firsts[copied]
        firsts.remove(first)
        if not firsts:
            del self._firsts[copied]

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.bytes_used == sum(piece.memory_bytes for piece in self._pieces.values())
        assert self.bytes_used <= self.bytes_max
        assert {(copied, first) for copied, firsts in self._firsts.items() for first in firsts} == set(
            self._pieces
        )
        assert all(firsts == sorted(firsts) for firsts in self._firsts.values())
