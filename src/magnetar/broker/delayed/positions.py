"""A set of positions over several ledgers: about a bit each where they are dense. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.managedlog.cursors.entry_set import MASK, SHIFT, EntrySet


class PositionSet:
    """Positions with ledger and entry >= 0."""

    __slots__ = ("_sets", "count", "last")

    count: int
    last: Position
    """No position after it is in the set."""

    def __init__(self) -> None:
        self._sets: dict[LedgerId, EntrySet] = {}
        self.count = 0
        self.last = EARLIEST

    def __contains__(self, position: Position) -> bool:
        entries = self._sets.get(position[0])
        return entries is not None and position[1] in entries

    def add(self, position: Position) -> bool:
        """Adds a position; whether it is new."""
        entries = self._sets.get(position[0])
        if entries is None:
            entries = self._sets[position[0]] = EntrySet()
        if not entries.add(position[1]):
            return False
        self.count += 1
        if position > self.last:
            self.last = position
        return True

    def discard(self, position: Position) -> bool:
        """Removes a position; returns whether it was there."""
        entries = self._sets.get(position[0])
        if entries is None or not entries.discard(position[1]):
            return False
        self.count -= 1
        if not entries.count:
            del self._sets[position[0]]
        return True

    def update(self, sets: Mapping[LedgerId, EntrySet]) -> None:
        """Adds all of these entries by ledger."""
        for ledger_id, added in sets.items():
            entries = self._sets.setdefault(ledger_id, EntrySet())
            before = entries.count
            for number, bits in added.chunks.items():
                entries.add_chunk(number, bits)
            self.count += entries.count - before
            if added.chunks:
                number = max(added.chunks)
                last = (number << SHIFT) + added.chunks[number].bit_length() - 1
                self.last = max(self.last, Position(ledger_id, last))

    def remove_upto(self, position: Position) -> None:
        """Removes all positions up to and including this one."""
        for ledger_id in [known for known in self._sets if known <= position.ledger_id]:
            entries = self._sets[ledger_id]
            before = entries.count
            if ledger_id == position.ledger_id:
                entries.remove_upto(position.entry_id)
            else:
                entries = EntrySet()
            self.count -= before - entries.count
            if not entries.count:
                del self._sets[ledger_id]

    def next_missing(self, position: Position) -> Position:
        """The first position of the same ledger, from this one on, that is not in the set."""
        entries = self._sets.get(position.ledger_id)
        if entries is None or position.entry_id < 0:
            return position
        return Position(position.ledger_id, entries.next_missing(position.entry_id))

    def clear(self) -> None:
        """Removes all positions."""
        self._sets.clear()
        self.count = 0
        self.last = EARLIEST

    def check(self) -> None:
        """Walks the invariants."""
        for entries in self._sets.values():
            entries.check()
        assert self.count == sum(entries.count for entries in self._sets.values())


def by_ledger(ledger_id: LedgerId, entries: Iterable[int]) -> dict[LedgerId, EntrySet]:
    """Entries of one ledger, as `update` takes them: one step for a whole chunk if they are in order."""
    found = EntrySet()
    current, bits = -1, 0
    for entry_id in entries:
        number = entry_id >> SHIFT
        if number != current:
            found.add_chunk(current, bits)
            current, bits = number, 0
        bits |= 1 << (entry_id & MASK)
    found.add_chunk(current, bits)
    return {ledger_id: found}
