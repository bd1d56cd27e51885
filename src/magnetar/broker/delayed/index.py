"""The delayed entries of a subscription, however many they are. Pure.

    held       every delayed entry, a bit each (`PositionSet`)
    wheel      times of entries that are due soon, or arrived lately: 16 bytes each (`TimeWheel`)
    segments   times of the others: on disk, in memory a few bytes for each 2,048 of them (`DelayedSegment`)

The content of wheel and segments may be out of date (acknowledged, skipped, taken twice): `held` decides. So
segments are written once and never changed; a segment that is lost or left over costs only work.

The driver asks `next_seal` and writes the result, asks `next_load` and reads the place, and deletes the
ledgers that `take_obsolete` names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.ids import LedgerId, Position
from magnetar.broker.delayed.positions import PositionSet, by_ledger
from magnetar.broker.delayed.segment import CHUNK_RECORDS, DelayedSegment, Sealing
from magnetar.broker.delayed.wheel import TimeWheel
from magnetar.managedlog.cursors.entry_set import EntrySet

FAR_MS: Final = 60_000
"""What is due within this time is not worth writing down."""
LOAD_LEAD_MS: Final = 5_000
"""Milliseconds before its first time at which a chunk is read."""
_READY_MAX: Final = 32_768
"""While this many entries are due and not taken, no more are read."""
_CHECK_EVERY: Final = 16_384
"""Entries added between two checks whether there are enough for a segment."""


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Sizes; the defaults suit millions of entries."""

    seal_min: int = 65_536
    """Entries of a segment, at least; this many are read again from the log after a restart."""
    seal_max: int = 262_144
    segments_max: int = 48
    """With more segments the one with the least left is read, and written again with others."""
    chunk_records: int = CHUNK_RECORDS


DEFAULT_LIMITS: Final = IndexLimits()


class DelayedIndex:
    """Positions by the time at which they are due."""

    __slots__ = (
        "_held",
        "_limits",
        "_next_segment",
        "_obsolete",
        "_sealing",
        "_segments",
        "_unchecked",
        "_wheel",
    )

    def __init__(self, limits: IndexLimits = DEFAULT_LIMITS) -> None:
        self._held = PositionSet()
        self._wheel = TimeWheel()
        self._segments: dict[LedgerId, DelayedSegment] = {}
        self._next_segment: DelayedSegment | None = None
        self._sealing: Sealing | None = None
        self._obsolete: list[LedgerId] = []
        self._unchecked = 0
        self._limits = limits

    # The held entries

    def __len__(self) -> int:
        return self._held.count

    def __contains__(self, position: Position) -> bool:
        return position in self._held

    @property
    def last_held(self) -> Position:
        """No position after it is held."""
        return self._held.last

    @property
    def in_memory(self) -> int:
        """Times that memory holds."""
        return len(self._wheel) + (0 if self._sealing is None else len(self._sealing))

    def next_free(self, position: Position) -> Position:
        """The first position of the same ledger, from this one on, that is not held."""
        return self._held.next_missing(position)

    def add(self, position: Position, deliver_at_ms: int, now_ms: int) -> bool:
        """Notes an entry that is due at `deliver_at_ms`, Unix ms; False when it was known."""
        if not self._held.add(position):
            return False
        self._wheel.add(position, deliver_at_ms, now_ms)
        self._unchecked += 1
        return True

    def add_many(self, ledger_id: LedgerId, entries: Sequence[tuple[int, int]], now_ms: int) -> None:
        """Notes entries of a ledger, none of which is held, with the times at which they are due."""
        self._held.update(by_ledger(ledger_id, [entry_id for entry_id, _ in entries]))
        self._wheel.add_many(ledger_id, entries, now_ms)
        self._unchecked += len(entries)

    def discard(self, positions: Sequence[Position]) -> bool:
        """These need not be delivered any more; whether any of them was held."""
        held = self._held
        if not sum(map(held.discard, positions)):
            return False
        self._shrink()
        return True

    def forget_upto(self, position: Position) -> None:
        """Nothing up to and including this position needs to be delivered any more."""
        self._held.remove_upto(position)
        for segment in list(self._segments.values()):
            if segment.last <= position:
                self._drop(segment)
        self._look()
        self._shrink()

    def _shrink(self) -> None:
        if not self._held.count:
            self.clear()
        elif len(self._wheel) > 2 * self._held.count + _CHECK_EVERY:
            self._wheel.keep(self._held.__contains__)

    def clear(self) -> None:
        """Forgets all entries."""
        self._held.clear()
        self._wheel.clear()
        self._obsolete.extend(self._segments)
        self._segments.clear()
        self._unchecked = 0
        self._look()

    def _look(self) -> None:
        """Finds out when which segment is to be read next."""
        self._next_segment = min(self._segments.values(), key=lambda each: each.next_ms, default=None)

    # The due entries

    def next_due_ms(self) -> int | None:
        """When the next work is due, Unix ms, perhaps in the past; None when nothing is held."""
        due_ms = self._wheel.next_due_ms()
        segment = self._next_segment
        if segment is None:
            return due_ms
        load_ms = segment.next_ms - LOAD_LEAD_MS
        return load_ms if due_ms is None else min(due_ms, load_ms)

    def pop_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Takes at most `count_max` due entries, in no particular order.

        An empty result does not mean that nothing is due: while `next_due_ms` is not after `now_ms`, a
        further call, or `next_load`, has work to do.
        """
        held = self._held
        due = [position for position in self._wheel.pop_due(now_ms, count_max) if held.discard(position)]
        if due and not held.count:
            self.clear()
        return due

    # From memory to disk

    def next_seal(self, now_ms: int) -> Sealing | None:
        """Entries to write down, when there are enough; `sealed` or `unsealed` must follow."""
        if self._sealing is not None or self._unchecked < min(_CHECK_EVERY, self._limits.seal_min):
            return None
        self._unchecked = 0
        after_ms = now_ms + FAR_MS
        if self._wheel.count_after(after_ms) < self._limits.seal_min:
            return None
        parts, ledgers = self._wheel.take_after(after_ms, self._limits.seal_max)
        self._sealing = Sealing(parts, ledgers, self._limits.chunk_records)
        return self._sealing

    def sealed(self, sealing: Sealing, ledger_id: LedgerId) -> None:
        """They were written to this ledger."""
        self._sealing = None
        self._segments[ledger_id] = sealing.segment(ledger_id)
        self._unchecked = _CHECK_EVERY  # there may be enough for the next one
        self._look()
        if not self._held.count:
            self.clear()

    def unsealed(self, sealing: Sealing, now_ms: int) -> None:
        """They could not be written."""
        self._sealing = None
        for time_ms, position in sealing.records():
            if position in self._held:
                self._wheel.add(position, time_ms, now_ms)

    # From disk to memory

    def restore(
        self, segment: DelayedSegment, positions: Mapping[LedgerId, EntrySet], acked_upto: Position
    ) -> None:
        """Adds a segment of an earlier process."""
        self._segments[segment.ledger_id] = segment
        self._held.update(positions)
        self._held.remove_upto(acked_upto)
        self._look()

    def next_load(self, now_ms: int) -> tuple[LedgerId, int] | None:
        """Ledger and entry to read now; `loaded` or `lost` must follow. None when there is none."""
        first = self._next_segment
        if first is None or self._wheel.ready_count > _READY_MAX:
            return None
        if first.next_ms - LOAD_LEAD_MS <= now_ms:
            return first.ledger_id, first.next_chunk
        if len(self._segments) > self._limits.segments_max:
            least = min(self._segments.values(), key=lambda segment: segment.left)
            return least.ledger_id, least.next_chunk
        return None

    def loaded(self, ledger_id: LedgerId, chunk: bytes, now_ms: int) -> None:
        """Adds a chunk that was read. Raises BadSegmentError."""
        segment = self._segments.get(ledger_id)
        if segment is None:
            return  # all entries were cleared meanwhile
        held = self._held
        for time_ms, position in segment.records(chunk):
            if position in held:
                self._wheel.add(position, time_ms, now_ms)
        self._unchecked += len(chunk) // 16
        segment.next_chunk += 1
        if not segment.left:
            self._drop(segment)
        self._look()

    def _drop(self, segment: DelayedSegment) -> None:
        del self._segments[segment.ledger_id]
        self._obsolete.append(segment.ledger_id)

    def take_obsolete(self) -> tuple[LedgerId, ...]:
        """Takes the ledgers of segments that are not needed any more."""
        taken, self._obsolete = tuple(self._obsolete), []
        return taken

    def check(self) -> None:
        """Walks the invariants."""
        self._held.check()
        self._wheel.check()
        assert all(segment.left > 0 for segment in self._segments.values())
