"""The ledgers and entries of a segment, and their row groups. Pure.

A segment written from a ledger has the entries of that ledger; a merged segment has those of several ledgers,
in order. Row groups hold whole entries, and may hold entries of several ledgers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.base.ids import LedgerId
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError


class LedgerSpan(NamedTuple):
    """The entries of one ledger in a segment, both ends included."""

    ledger_id: LedgerId
    first_entry: int
    last_entry: int


class Start(NamedTuple):
    """The first entry of a row group."""

    ledger_id: LedgerId
    entry_id: int


def encode(rows: Sequence[LedgerSpan] | Sequence[Start]) -> str:
    """Decimal numbers; `:` separates the numbers of a row, `,` the rows."""
    return ",".join(":".join(map(str, row)) for row in rows)


def decode_ledgers(text: bytes) -> list[LedgerSpan]:
    """The inverse of `encode`. Raises DamagedSegmentError."""
    try:
        numbers = [map(int, part.split(b":")) for part in text.split(b",")]
        found = [LedgerSpan(LedgerId(next(row)), *row) for row in numbers]
    except (ValueError, TypeError) as error:
        raise DamagedSegmentError(f"a segment says that it has the entries {text[:200]!r}") from error
    ids = [span.ledger_id for span in found]
    if sorted(set(ids)) != ids or any(span.last_entry < span.first_entry for span in found):
        raise DamagedSegmentError(f"a segment says that it has the entries {text[:200]!r}")
    return found


def decode_starts(text: bytes) -> list[Start]:
    """The inverse of `encode`. Raises DamagedSegmentError."""
    try:
        numbers = [map(int, part.split(b":")) for part in text.split(b",")]
        return [Start(LedgerId(next(row)), *row) for row in numbers]
    except (ValueError, TypeError) as error:
        raise DamagedSegmentError(f"row groups are said to start at {text[:200]!r}") from error


class EntrySpans:
    """Entries of a segment."""

    def __init__(self, name: str, ledgers: Sequence[LedgerSpan], starts: Sequence[Start]) -> None:
        """`name`: the segment's name in errors; `starts`: first entry of each row group."""
        self._name = name
        self.ledgers = ledgers
        self.starts = starts
        self._ids = [span.ledger_id for span in ledgers]

    @property
    def has_several(self) -> bool:
        """Whether the segment has several ledgers."""
        return len(self.ledgers) > 1

    def of(self, ledger_id: LedgerId) -> LedgerSpan:
        """The entries of a ledger. Raises DamagedSegmentError when there are none."""
        at = bisect_right(self._ids, ledger_id) - 1
        if at < 0 or self._ids[at] != ledger_id:
            raise DamagedSegmentError(f"{self._name} has nothing of ledger {ledger_id}")
        return self.ledgers[at]

    def group_with(self, ledger_id: LedgerId, entry: int) -> int:
        """Number of the row group with an entry, if it is in any; of one that is left out, that of the entry
        before it, or the first. Raises DamagedSegmentError when there is none."""
        self.check(ledger_id, entry)
        if not self.starts:
            raise DamagedSegmentError(f"{self._name} has no row of ledger {ledger_id}")
        return max(0, bisect_right(self.starts, (ledger_id, entry)) - 1)

    def check(self, ledger_id: LedgerId, entry: int) -> None:
        """Raises DamagedSegmentError when an entry is none of those that the segment is to have."""
        span = self.of(ledger_id)
        if not span.first_entry <= entry <= span.last_entry:
            raise DamagedSegmentError(
                f"{self._name} has the entries {span.first_entry} to {span.last_entry}"
                f" of ledger {ledger_id}, not {entry}"
            )

    def entries_in(self, group: int, ledger_id: LedgerId) -> tuple[int, int]:
        """First and last entry of a ledger in a row group. Raises DamagedSegmentError when it has none."""
        span = self.of(ledger_id)
        first, last = span.first_entry, span.last_entry
        if self.starts[group].ledger_id == ledger_id:
            first = max(first, self.starts[group].entry_id)
        if group + 1 < len(self.starts) and self.starts[group + 1].ledger_id == ledger_id:
            last = self.starts[group + 1].entry_id - 1
        return first, last

    def groups_of(self, ledger_id: LedgerId) -> range:
        """Numbers of the row groups that may have entries of a ledger; none when all of them are left out."""
        span = self.of(ledger_id)
        if not self.starts:
            return range(0)
        first = self.group_with(ledger_id, span.first_entry)
        return range(first, self.group_with(ledger_id, span.last_entry) + 1)
