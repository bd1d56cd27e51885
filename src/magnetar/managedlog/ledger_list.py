"""The ledgers of a log and the arithmetic of positions over them.

A log's entries are numbered per ledger; ledgers follow each other by id with gaps between the ids. This class
tells the next or previous entry and the number of entries between two positions, without any input or output.

Terms: a *sealed* ledger gets no more entries, so its end is final. The last ledger of a log that is not
terminated is the *current* one. `entries` of the current ledger counts durable entries only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.tiered.context import OffloadContext


class Ledger:
    """The log's record of one of its ledgers."""

    __slots__ = (
        "base_index",
        "created_ms",
        "entries",
        "ledger_id",
        "offload",
        "sealed_end",
        "size_bytes",
        "timestamp_ms",
    )

    ledger_id: LedgerId
    base_index: int
    """Messages in the log before its first entry."""
    entries: int
    """Durable entries."""
    size_bytes: int
    """Bytes of the durable entries."""
    timestamp_ms: int
    """Broker time of the last durable entry, Unix ms; 0 while there is none."""
    created_ms: int
    """When this owner created it, Unix ms; 0 when another did."""
    offload: OffloadContext | None
    """Its copy in an object store, as stored; None without one."""
    sealed_end: int | None
    """Last entry id of a sealed ledger (-1: empty); None for the current ledger. While the last appends are
    not durable yet, `entries` is smaller."""

    def __init__(self, ledger_id: LedgerId, base_index: int, *, created_ms: int = 0) -> None:
        self.ledger_id = ledger_id
        self.base_index = base_index
        self.entries = 0
        self.size_bytes = 0
        self.timestamp_ms = 0
        self.created_ms = created_ms
        self.offload = None
        self.sealed_end = None

    @classmethod
    def sealed(
        cls, ledger_id: LedgerId, base_index: int, *, entries: int, size_bytes: int, timestamp_ms: int
    ) -> Ledger:
        """A ledger whose end is known."""
        ledger = cls(ledger_id, base_index)
        ledger.entries = entries
        ledger.size_bytes = size_bytes
        ledger.timestamp_ms = timestamp_ms
        ledger.sealed_end = entries - 1
        return ledger

    @property
    def complete(self) -> bool:
        """Sealed, and all its entries are durable."""
        return self.sealed_end is not None and self.entries == self.sealed_end + 1

    @property
    def offloaded(self) -> bool:
        """Whether there is a complete copy, which may be read."""
        return self.offload is not None and self.offload.complete

    @property
    def local(self) -> bool:
        """Whether the bookies have it."""
        return self.offload is None or not self.offload.local_deleted

    @property
    def copied(self) -> bool:
        """Whether the bookies have it, and an object store has a complete copy too."""
        return self.local and self.offload is not None and self.offload.complete and not self.offload.foreign

    def __repr__(self) -> str:
        return f"Ledger({self.ledger_id}, entries={self.entries}, sealed_end={self.sealed_end})"


class LedgerList:
    """Ledgers of one log, ascending by id."""

    __slots__ = ("_before", "_ids", "_ledgers", "entry_count", "size_bytes")

    entry_count: int
    """Durable entries of all ledgers."""
    size_bytes: int
    """Bytes of all durable entries."""

    def __init__(self, ledgers: list[Ledger] | None = None) -> None:
        self._ledgers: list[Ledger] = []
        self._ids: list[LedgerId] = []
        # _before[i]: entries ever counted in ledgers before i, on a scale whose zero moves when ledgers
        # are trimmed; only differences are used. Exact once the ledger before is complete.
        self._before: list[int] = []
        self.entry_count = 0
        self.size_bytes = 0
        for ledger in ledgers or ():
            self.add(ledger)

    def __len__(self) -> int:
        return len(self._ledgers)

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self._ledgers)

    def __getitem__(self, index: int) -> Ledger:
        return self._ledgers[index]

    @property
    def current(self) -> Ledger | None:
        """The last ledger while it is not sealed: entries are appended to it; None when there is none."""
        last = self._ledgers[-1] if self._ledgers else None
        return last if last is not None and last.sealed_end is None else None

    def find(self, ledger_id: LedgerId) -> Ledger | None:
        """The ledger of that id, or None."""
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            return self._ledgers[index]
        return None

    def following(self, ledger_id: LedgerId) -> Ledger | None:
        """The first ledger with a higher id, or None."""
        index = bisect_right(self._ids, ledger_id)
        return self._ledgers[index] if index < len(self._ledgers) else None

    # Changes

    def add(self, ledger: Ledger) -> None:
        """Appends a ledger; the one before must be sealed."""
        if self._ledgers:
            last = self._ledgers[-1]
            assert ledger.ledger_id > last.ledger_id, "ledger ids of a log must increase"
            assert last.sealed_end is not None, "only the last ledger may be open"
            self._before.append(self._before[-1] + last.sealed_end + 1)
        else:
            self._before.append(0)
        self._ledgers.append(ledger)
        self._ids.append(ledger.ledger_id)
        self.entry_count += ledger.entries
        self.size_bytes += ledger.size_bytes

    def grow(self, ledger: Ledger, entries: int, size_bytes: int, timestamp_ms: int) -> None:
        """`entries` more entries of `ledger` became durable."""
        ledger.entries += entries
        ledger.size_bytes += size_bytes
        ledger.timestamp_ms = timestamp_ms
        self.entry_count += entries
        self.size_bytes += size_bytes

    def remove(self, ledger_id: LedgerId) -> Ledger:
        """Takes a ledger out."""
        index = self._ids.index(ledger_id)
        ledger = self._ledgers.pop(index)
        del self._ids[index]
        del self._before[index]
        if ledger.entries:
            # Only ledgers at the front are trimmed while they hold entries, so no later sum changes.
            assert index == 0, "a ledger with entries was taken from the middle"
        self.entry_count -= ledger.entries
        self.size_bytes -= ledger.size_bytes
        return ledger

    # Positions

    @property
    def first_position(self) -> Position:
        """The first entry, or the position of the next append. The list must not be empty."""
        for ledger in self._ledgers:
            if ledger.sealed_end is None or ledger.sealed_end >= 0:
                return Position(ledger.ledger_id, 0)
        last = self._ledgers[-1]
        return Position(last.ledger_id, 0)

    @property
    def last_position(self) -> Position:
        """The last durable entry; `(current ledger, -1)` when the current ledger has none and all before is
        durable; before all positions when the list is empty."""
        for index in range(len(self._ledgers) - 1, -1, -1):
            ledger = self._ledgers[index]
            if ledger.entries or index == 0 or self._ledgers[index - 1].complete:
                return Position(ledger.ledger_id, ledger.entries - 1)
        return EARLIEST

    def next_position(self, position: Position) -> Position:
        """The first entry after `position` that exists or may come to exist."""
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            end = self._ledgers[index].sealed_end
            if end is None or entry_id < end:
                return Position(ledger_id, entry_id + 1 if entry_id >= 0 else 0)
            index += 1
        for following in range(index, len(self._ledgers)):
            if self._ledgers[following].sealed_end != -1:
                return Position(self._ids[following], 0)
        return self._after_all(position)

    def _after_all(self, position: Position) -> Position:
        """The position after the last entry."""
        if not self._ledgers:
            return Position(position.ledger_id, position.entry_id + 1)
        last = self._ledgers[-1]
        end = last.entries if last.sealed_end is None else last.sealed_end + 1
        return Position(last.ledger_id, end)

    def clamp(self, position: Position) -> Position:
        """The last durable entry up to `position`, or (ledger, -1) before the first one of a ledger."""
        end = self.last_position
        if position >= end:
            return end
        ledger = self.find(position.ledger_id)
        if ledger is None:
            return self.previous_position(position)
        return Position(position.ledger_id, min(position.entry_id, ledger.entries - 1))

    def previous_position(self, position: Position) -> Position:
        """The last entry before `position`; `(first ledger, -1)` when there is none.

        An entry that is appended but not durable yet counts in sealed ledgers only.
        """
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id and entry_id > 0:
            ledger = self._ledgers[index]
            end = entry_id - 1 if ledger.sealed_end is None else min(entry_id - 1, ledger.sealed_end)
            if end >= 0:
                return Position(ledger_id, end)
        for earlier in range(index - 1, -1, -1):
            ledger = self._ledgers[earlier]
            end = ledger.entries - 1 if ledger.sealed_end is None else ledger.sealed_end
            if end >= 0:
                return Position(ledger.ledger_id, end)
        return Position(self._ids[0], -1) if self._ids else Position(ledger_id, -1)

    def _rank(self, position: Position) -> int:
        """Entries up to and including `position`, on the scale of `_before`."""
        index = bisect_left(self._ids, position.ledger_id)
        if index < len(self._ids) and self._ids[index] == position.ledger_id:
            return self._before[index] + min(position.entry_id + 1, self._ledgers[index].entries)
        if index < len(self._ids):
            return self._before[index]
        if not self._ids:
            return 0
        return self._before[-1] + self._ledgers[-1].entries

    def entries_between(self, after: Position, upto: Position) -> int:
        """Durable entries after `after`, up to and including `upto`; 0 when `upto` is not after `after`."""
        return max(0, self._rank(upto) - self._rank(after))

    def check(self) -> None:
        """Asserts the invariants."""
        assert self._ids == sorted(set(self._ids))
        assert self._ids == [ledger.ledger_id for ledger in self._ledgers]
        assert all(ledger.sealed_end is not None for ledger in self._ledgers[:-1])
        assert self.entry_count == sum(ledger.entries for ledger in self._ledgers)
        assert self.size_bytes == sum(ledger.size_bytes for ledger in self._ledgers)
        for index, ledger in enumerate(self._ledgers):
            assert ledger.sealed_end is None or ledger.entries <= ledger.sealed_end + 1
            if index:
                before = self._ledgers[index - 1]
                assert before.sealed_end is not None
                assert self._before[index] - self._before[index - 1] == before.sealed_end + 1
