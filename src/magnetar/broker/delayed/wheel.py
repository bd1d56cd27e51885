"""Which entries are due when, of those in memory: 8 or 16 bytes each. Pure.

A hierarchical timing wheel. Level 0 has slots of one tick, each level above has slots 256 times as wide.
An entry lies at the lowest level whose 256 slots reach its time; when the time of a wide slot comes near,
its entries are moved to lower levels, a bounded number per call. A slot of level 0 is due as a whole at
its end: nothing is early, and nothing is late by more than a tick.

Why not a heap: a heap of Python integers takes six times the memory, and one over flat arrays takes
twenty steps of interpreted code per entry.

    slot of level 0     position u64 ...
    slot of level 1..4  time u64 (Unix ms) | position u64 ...
    position            number of the ledger in `_ledgers` (24 bits) | entry id (40 bits)
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.ids import LedgerId, Position

_TICK_BITS: Final = 5
TICK_MS: Final = 1 << _TICK_BITS
"""How late an entry may be because of the index."""
_LEVEL_BITS: Final = 8
_LEVEL_MAX: Final = 4
"""Slots of this level are 2^37 ms wide, four years; 256 of them reach beyond any sensible time."""
_TIME_MAX_MS: Final = 1 << (_TICK_BITS + _LEVEL_BITS * (_LEVEL_MAX + 1))
"""Later times count as this one, in the year 3084."""
_LEAD_MS: Final = 2_000
"""Milliseconds before its time at which a wide slot is opened, so that a large one is divided in time."""
_MOVED_PER_CALL: Final = 4_096
"""Entries of wide slots that one call moves: some milliseconds of work."""
ENTRY_BITS: Final = 40
ENTRY_MASK: Final = (1 << ENTRY_BITS) - 1


def _start_ms(level: int, number: int) -> int:
    """Start of a slot, Unix ms."""
    return number << (_TICK_BITS + _LEVEL_BITS * level)


class TimeWheel:
    """Positions by the time at which they are due."""

    __slots__ = (
        "_count",
        "_ledgers",
        "_numbers",
        "_opening",
        "_order",
        "_ready",
        "_ready_at",
        "_ready_to_ms",
        "_slots",
    )

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], array[int]] = {}
        """(level, number of the slot) → what is in it."""
        self._order: list[tuple[int, int, int]] = []
        """(when to open, level, number) of every slot, a heap."""
        self._opening: tuple[int, array[int]] | None = None
        """A wide slot that is being divided: its level, and what is left of it."""
        self._ready: deque[tuple[int, array[int]]] = deque()
        """Numbers and contents of the due slots of level 0."""
        self._ready_to_ms = 0
        """When the last of them became due; when the clock is before that, some of them are not due any
        more."""
        self._ready_at = 0
        """Positions already taken from the first ready slot."""
        self._ledgers: list[LedgerId] = []
        self._numbers: dict[LedgerId, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, position: Position, deliver_at_ms: int, now_ms: int) -> None:
        """Notes an entry that is due at `deliver_at_ms`, Unix ms. Adding it twice yields it twice."""
        self._put(deliver_at_ms, self._pack(position), now_ms)
        self._count += 1

    def add_many(self, ledger_id: LedgerId, entries: Sequence[tuple[int, int]], now_ms: int) -> None:
        """Notes entries of one ledger: entry id and time."""
        base = self._pack(Position(ledger_id, 0))
        assert max(entries)[0] <= ENTRY_MASK
        slots = self._slots
        for entry_id, time_ms in entries:
            # Times within 35 minutes, and 6 days, have their slot without a search.
            distance = (time_ms - now_ms) >> (_TICK_BITS + _LEVEL_BITS)
            if 0 < distance < 1 << 2 * _LEVEL_BITS:
                level = 1 if distance < 1 << _LEVEL_BITS else 2
                slot = slots.get((level, time_ms >> (_TICK_BITS + _LEVEL_BITS * level)))
                if slot is not None:
                    slot.append(time_ms)
                    slot.append(base | entry_id)
                    continue
            self._put(time_ms, base | entry_id, now_ms)
        self._count += len(entries)

    def _put(self, time_ms: int, packed: int, reference_ms: int) -> None:
        """Puts an entry into the slot that is right as seen from `reference_ms`."""
        time_ms = min(time_ms, _TIME_MAX_MS)
        distance = (time_ms - reference_ms) >> (_TICK_BITS + _LEVEL_BITS)
        level = 0
        while distance > 0 and level < _LEVEL_MAX:
            distance >>= _LEVEL_BITS
            level += 1
        if level == 0:
            number = -(-time_ms >> _TICK_BITS)  # rounded up: the slot is due when its number of ticks is full
            slot = self._slot(0, number, number << _TICK_BITS)
            slot.append(packed)
            return
        shift = _TICK_BITS + _LEVEL_BITS * level
        number = time_ms >> shift
        slot = self._slot(level, number, (number << shift) - _LEAD_MS)
        slot.append(time_ms)
        slot.append(packed)

    def _slot(self, level: int, number: int, open_ms: int) -> array[int]:
        slot = self._slots.get((level, number))
        if slot is None:
            slot = self._slots[level, number] = array("Q")
            heapq.heappush(self._order, (open_ms, level, number))
        return slot

    @property
    def ready_count(self) -> int:
        """Lower bound of the entries that are due and not taken."""
        return sum(len(slot) for _, slot in self._ready) - self._ready_at

    def count_after(self, time_ms: int) -> int:
        """Entries in slots that begin after a time."""
        return sum(len(slot) // 2 for _, slot in self._after(time_ms))

    def _after(self, time_ms: int) -> list[tuple[tuple[int, int], array[int]]]:
        return [(key, slot) for key, slot in self._slots.items() if key[0] and _start_ms(*key) > time_ms]

    def take_after(self, time_ms: int, count_max: int) -> tuple[list[array[int]], list[LedgerId]]:
        """Takes entries of slots that begin after a time, until there are `count_max`.

        Yields for each slot an array of `time, packed position`, unordered, and the ledgers by number. Slots
        come in order of their starts; a wide one may overlap narrow ones after it.
        """
        taken: list[array[int]] = []
        for key, slot in sorted(self._after(time_ms), key=lambda item: _start_ms(*item[0])):
            if count_max <= 0:
                break
            if len(slot) // 2 > count_max:
                part = slot[-2 * count_max :]
                del slot[-2 * count_max :]
            else:
                # Its place in `_order` stays, and finds nothing.
                part = self._slots.pop(key)
            taken.append(part)
            count_max -= len(part) // 2
            self._count -= len(part) // 2
        return taken, list(self._ledgers)

    def keep(self, wanted: Callable[[Position], bool]) -> None:
        """Forgets all entries that are not wanted."""
        old = self._slots
        if self._opening is not None:
            level, opening = self._opening
            old[level, -1] = opening
        self._slots, self._order, self._opening = {}, [], None
        ready, self._ready = self._ready, deque()
        skipped, self._ready_at = self._ready_at, 0
        for number, slot in ready:
            kept = array("Q", (each for each in slot[skipped:] if wanted(self._unpack(each))))
            skipped = 0
            if kept:
                self._ready.append((number, kept))
        for (level, number), slot in old.items():
            step = 1 if level == 0 else 2
            kept = array("Q")
            for i in range(0, len(slot), step):
                if wanted(self._unpack(slot[i + step - 1])):
                    kept.extend(slot[i : i + step])
            if not kept:
                continue
            if number < 0:
                self._opening = (level, kept)
                continue
            shift = _TICK_BITS + _LEVEL_BITS * level
            self._slot(level, number, (number << shift) - (_LEAD_MS if level else 0)).extend(kept)
        slots = sum(len(slot) // (2 if level else 1) for (level, _), slot in self._slots.items())
        opened = 0 if self._opening is None else len(self._opening[1]) // 2
        self._count = slots + opened + self.ready_count
        if not self._count:
            self.clear()

    def _pack(self, position: Position) -> int:
        ledger_id, entry_id = position
        number = self._numbers.get(ledger_id)
        if number is None:
            number = self._numbers[ledger_id] = len(self._ledgers)
            self._ledgers.append(ledger_id)
        assert entry_id <= ENTRY_MASK
        return number << ENTRY_BITS | entry_id

    def _unpack(self, packed: int) -> Position:
        return Position(self._ledgers[packed >> ENTRY_BITS], packed & ENTRY_MASK)

    def next_due_ms(self) -> int | None:
        """When `pop_due` should be called next, Unix ms, perhaps in the past; None when nothing is held."""
        if self._ready or self._opening is not None:
            return 0
        return self._order[0][0] if self._order else None

    def pop_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Takes at most `count_max` due entries, in no particular order.

        An empty result does not mean that nothing is due: while `next_due_ms` is not after `now_ms`, a
        further call has work to do.
        """
        if now_ms < self._ready_to_ms:
            self._take_back(now_ms)
        self._open(now_ms)
        found: list[Position] = []
        ready, ledgers = self._ready, self._ledgers
        while ready and len(found) < count_max:
            slot = ready[0][1]
            at = self._ready_at
            for packed in slot[at : at + count_max - len(found)]:
                found.append(Position(ledgers[packed >> ENTRY_BITS], packed & ENTRY_MASK))
                at += 1
            if at == len(slot):
                ready.popleft()
                at = 0
            self._ready_at = at
        self._count -= len(found)
        if not self._count:
            self.clear()
        return found

    def _take_back(self, now_ms: int) -> None:
        """The clock was set back: what had become due and was not taken waits again."""
        ready, self._ready = self._ready, deque()
        skipped, self._ready_at = self._ready_at, 0
        self._ready_to_ms = 0
        for number, slot in ready:
            left, skipped = slot[skipped:], 0
            due_ms = number << _TICK_BITS
            if due_ms > now_ms:
                self._slot(0, number, due_ms).extend(left)
            else:
                self._ready.append((number, left))
                self._ready_to_ms = max(self._ready_to_ms, due_ms)

    def _open(self, now_ms: int) -> None:
        """Opens the due slots, as far as the work of one call allows."""
        budget = _MOVED_PER_CALL
        while budget > 0:
            if self._opening is not None:
                budget -= self._divide(*self._opening, budget)
            elif self._order and self._order[0][0] <= now_ms:
                _, level, number = heapq.heappop(self._order)
                slot = self._slots.pop((level, number), None)
                if slot is None:
                    continue
                if level == 0:
                    self._ready.append((number, slot))
                    self._ready_to_ms = max(self._ready_to_ms, number << _TICK_BITS)
                else:
                    self._opening = (level, slot)
            else:
                return

    def _divide(self, level: int, slot: array[int], budget: int) -> int:
        """Moves entries from the end of a wide slot to lower levels; how many."""
        moved = min(budget, len(slot) // 2)
        shift = _TICK_BITS + _LEVEL_BITS * level
        for _ in range(moved):
            packed = slot.pop()
            time_ms = slot.pop()
            # Seen from the slot's beginning it is less than a slot's width away: at a lower level, always.
            self._put(time_ms, packed, time_ms >> shift << shift)
        if not slot:
            self._opening = None
        return moved

    def clear(self) -> None:
        """Forgets all entries."""
        self._slots.clear()
        self._order.clear()
        self._opening = None
        self._ready.clear()
        self._ready_at = self._ready_to_ms = 0
        self._ledgers.clear()
        self._numbers.clear()
        self._count = 0

    def check(self) -> None:
        """Walks the invariants."""
        slots = sum(len(slot) // (1 if level == 0 else 2) for (level, _), slot in self._slots.items())
        opening = 0 if self._opening is None else len(self._opening[1]) // 2
        ready = self.ready_count
        assert all(number << _TICK_BITS <= self._ready_to_ms for number, _ in self._ready)
        assert self._count == slots + opening + ready
        known = {(level, number) for _, level, number in self._order}
        assert known >= self._slots.keys()
