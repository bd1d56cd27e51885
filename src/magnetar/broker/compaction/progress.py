"""A subscription's acknowledgements of compacted entries that its cursor does not cover. Pure.

A cursor covers the entries in the log. Entries that were trimmed after their compaction lie before the log's
first entry, where everything counts as acknowledged. So a subscription that reads there records its progress
here, up to `floor`, from where on the cursor counts:
start … mark │ seen: acknowledged, or `pending` … read │ not seen … │ floor: the cursor's
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX, bits_of_words, words_of_bits

MARK_LEDGER: Final = "CompactedMarkLedger"
MARK_ENTRY: Final = "CompactedMarkEntry"
FLOOR_LEDGER: Final = "CompactedFloorLedger"
FLOOR_ENTRY: Final = "CompactedFloorEntry"
NAMES: Final = frozenset({MARK_LEDGER, MARK_ENTRY, FLOOR_LEDGER, FLOOR_ENTRY})
"""The cursor's properties that keep it."""


def before(position: Position) -> Position:
    """The place directly before, whether there is an entry or not."""
    return Position(position.ledger_id, position.entry_id - 1)


def after(position: Position) -> Position:
    """The place directly after, whether there is an entry or not."""
    return Position(position.ledger_id, position.entry_id + 1)


class Progress:
    """Acknowledgements before `floor`."""

    __slots__ = ("_pending", "floor", "mark", "read")

    floor: Position
    """What is here or later is the cursor's."""
    mark: Position
    """All entries up to here are acknowledged, or were removed by compaction."""
    read: Position
    """Up to here it is known what compaction has left."""

    def __init__(self, mark: Position, floor: Position) -> None:
        self.floor = floor
        self.mark = self.read = min(mark, before(floor))
        # Entries up to `read` that are not acknowledged, in their order; which messages of a batch are left,
        # as bits, 0 for an entry that is left whole.
        self._pending: OrderedDict[Position, int] = OrderedDict()

    @classmethod
    def of(cls, properties: Mapping[str, int]) -> Progress | None:
        """The progress in a cursor's properties; None without one."""
        if not properties.keys() >= NAMES:
            return None
        return cls(
            Position(LedgerId(properties[MARK_LEDGER]), properties[MARK_ENTRY]),
            Position(LedgerId(properties[FLOOR_LEDGER]), properties[FLOOR_ENTRY]),
        )

    def properties(self) -> dict[str, int]:
        """The properties to store: entries acknowledged after `mark` are delivered again after a restart."""
        return {
            MARK_LEDGER: self.mark.ledger_id,
            MARK_ENTRY: self.mark.entry_id,
            FLOOR_LEDGER: self.floor.ledger_id,
            FLOOR_ENTRY: self.floor.entry_id,
        }

    @property
    def complete(self) -> bool:
        """Whether nothing before `floor` is to be delivered any more."""
        return self.mark >= before(self.floor)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def is_acked(self, position: Position) -> bool:
        return position <= self.mark or (position <= self.read and position not in self._pending)

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        """Which messages of a batch are to be delivered, as words; None: all of them."""
        left = self._pending.get(position)
        return words_of_bits(left) if left else None

    def saw(self, start: Position, survivors: Sequence[tuple[Position, int]], upto: Position) -> None:
        """From `start` to `upto` compaction has left these entries and nothing else; the number is
        `survivors.left_in_batch`."""
        if start > after(self.read):
            # Entries in between were not read: they stay as they are.
            return
        upto = min(upto, before(self.floor))
        left = {position for position, _ in survivors}
        for position in [each for each in self._pending if start <= each <= upto and each not in left]:
            # Compacted again meanwhile: a later message of its key replaces it.
            del self._pending[position]
        for position, bits in survivors:
            if self.read < position <= upto:
                self._pending[position] = bits
            elif bits and (known := self._pending.get(position)) is not None:
                if not known or known & bits:
                    self._pending[position] = known & bits if known else bits
                else:
                    del self._pending[position]
        self.read = max(self.read, upto)
        self._advance()

    def ack(self, positions: Sequence[Position]) -> None:
        """Whole entries, in any order; what is not pending is ignored."""
        for position in positions:
            self._pending.pop(position, None)
        self._advance()

    def ack_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """As `CursorState.ack_batch`."""
        known = self._pending.get(position)
        if known is None:
            return False
        left = bits_of_words(ack_set[:ACK_SET_WORDS_MAX])
        if 0 < batch_size < left.bit_length():
            left &= (1 << batch_size) - 1
        if known:
            left &= known
        if left:
            self._pending[position] = left
            return False
        del self._pending[position]
        self._advance()
        return True

    def ack_cumulative(self, position: Position) -> None:
        """Acknowledges all entries up to and including `position`."""
        pending = self._pending
        while pending and (first := next(iter(pending))) <= position:
            del pending[first]
        if position > self.read:
            self.read = min(position, before(self.floor))
        self._advance()

    def _advance(self) -> None:
        self.mark = max(self.mark, before(next(iter(self._pending))) if self._pending else self.read)

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.mark <= self.read <= before(self.floor)
        assert list(self._pending) == sorted(self._pending)
        assert all(self.mark < position <= self.read for position in self._pending)
