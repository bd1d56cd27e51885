"""Where the blocks of each ledger are.

One row per block, packed, because a store may hold many thousands of ledgers, most of which are never read:

    offset  width  field
         0      8  first_entry    i64
         8      4  offset         of the block in its segment
        12      4  size           of the block, header included
        16      4  entry_count
        20      4  data_bytes     of the entries alone

The same rows, grouped by ledger, are the footer of a sealed segment.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final, NamedTuple

from magnetar.base.ids import LedgerId

_ROW: Final = struct.Struct("<qIIII")
_FIRST: Final = struct.Struct("<q")
ROW_BYTES: Final = _ROW.size
UNKNOWN_OWNER: Final = LedgerId(-2)
"""Ledger of a Damage whose owner was lost with the bytes."""


def may_be_row(buffer: bytes, blocks_from: int, blocks_to: int) -> bool:
    """Whether these bytes can be a row of a block between the two offsets."""
    if len(buffer) != ROW_BYTES:
        return False
    first, offset, size, count, data_bytes = _ROW.unpack(buffer)
    inside: bool = blocks_from <= offset < offset + size <= blocks_to
    return inside and first >= 0 and count > 0 and 4 * count + data_bytes < size


class BlockPlace(NamedTuple):
    """One block of a ledger and its place."""

    segment_id: int
    first_entry: int
    offset: int
    size: int
    entry_count: int
    data_bytes: int

    @property
    def last_entry(self) -> int:
        """Entry id of the last entry in the block."""
        return self.first_entry + self.entry_count - 1


class BlockRows:
    """The blocks of one ledger in one segment, in the order of writing.

    That is also the order of their entries, except on a networked bookie: re-replicated copies arrive late,
    and may repeat entries that are already stored. The latest copy counts.
    """

    __slots__ = ("data_bytes", "is_ascending", "last_entry", "rows", "segment_id")

    segment_id: int
    rows: bytearray
    """Packed rows; see the table above."""
    last_entry: int
    """The highest entry; -1 without blocks."""
    data_bytes: int
    """Bytes of all entries."""
    is_ascending: bool
    """Whether the entries of each block follow those of the blocks before it."""

    def __init__(self, segment_id: int, rows: bytes = b"") -> None:
        self.segment_id = segment_id
        self.rows = bytearray(rows)
        self.last_entry = -1
        self.data_bytes = 0
        self.is_ascending = True
        if not rows:
            return
        for first, _, _, count, data_bytes in _ROW.iter_unpack(rows):
            if first <= self.last_entry:
                self.is_ascending = False
            self.last_entry = max(self.last_entry, first + count - 1)
            self.data_bytes += data_bytes

    def __len__(self) -> int:
        return len(self.rows) // ROW_BYTES

    def append(self, first_entry: int, offset: int, size: int, entry_count: int, data_bytes: int) -> None:
        """Adds the next block."""
        last = first_entry + entry_count - 1
        if first_entry > self.last_entry:
            self.last_entry = last
        else:
            self.is_ascending = False
            self.last_entry = max(self.last_entry, last)
        self.rows += _ROW.pack(first_entry, offset, size, entry_count, data_bytes)
        self.data_bytes += data_bytes

    def place(self, row: int) -> BlockPlace:
        """The block of row `row`."""
        first, offset, size, count, data_bytes = _ROW.unpack_from(self.rows, row * ROW_BYTES)
        return BlockPlace(self.segment_id, first, offset, size, count, data_bytes)

    @property
    def first_entry(self) -> int:
        """The lowest entry; there must be one."""
        if not self.is_ascending:
            return min(entries.start for entries in self.ranges())
        first: int = _FIRST.unpack_from(self.rows)[0]
        return first

    def holder(self, entry: int) -> BlockPlace | None:
        """The latest block with the entry; None when there is none.

        Scans all rows when they are not in order.
        """
        if self.is_ascending:
            row = self.find(entry)
            place = self.place(row) if row >= 0 else None
            return place if place is not None and entry <= place.last_entry else None
        found = None
        for row, (first, _, _, count, _) in enumerate(_ROW.iter_unpack(self.rows)):
            if first <= entry < first + count:
                found = row
        return None if found is None else self.place(found)

    def ranges(self) -> list[range]:
        """The entries of each block, in the order of the blocks."""
        return [range(first, first + count) for first, _, _, count, _ in _ROW.iter_unpack(self.rows)]

    def find(self, entry: int) -> int:
        """The last row whose first entry is not above `entry`, of rows in order; -1 when all are above."""
        rows, unpack = self.rows, _FIRST.unpack_from
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if unpack(rows, middle * ROW_BYTES)[0] <= entry:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def check(self) -> None:
        """Asserts the invariants: rows ascend where they should, none is empty, the sums agree."""
        # Simulated runs call this after each step: no BlockPlace is made of a row.
        last, total = -1, 0
        for first, _, size, count, data_bytes in _ROW.iter_unpack(self.rows):
            assert first > last or not self.is_ascending
            assert count > 0
            assert size > data_bytes
            last, total = max(last, first + count - 1), total + data_bytes
        assert (last, total) == (self.last_entry, self.data_bytes)


class LedgerIndex:
    """All blocks of one ledger, across segments. The part in the active segment grows in place."""

    __slots__ = ("__weakref__", "deleted", "ledger_id", "parts")

    ledger_id: LedgerId
    parts: list[BlockRows]
    """One per segment with blocks of the ledger, in the order of the segments."""

    def __init__(self, ledger_id: LedgerId, parts: list[BlockRows] | None = None) -> None:
        self.ledger_id = ledger_id
        self.deleted = False
        """Set for good when the ledger is deleted while a reader holds its index."""
        self.parts = [] if parts is None else parts

    @property
    def last_entry(self) -> int:
        """Highest stored entry; -1 when there is none."""
        return max((part.last_entry for part in self.parts), default=-1)

    @property
    def is_ascending(self) -> bool:
        """Whether the blocks were written in the order of their entries."""
        last = -1
        for part in self.parts:
            if not part.is_ascending or part.first_entry <= last:
                return False
            last = part.last_entry
        return True

    @property
    def data_bytes(self) -> int:
        """Bytes of all stored entries."""
        return sum(part.data_bytes for part in self.parts)

    @property
    def last_place(self) -> BlockPlace | None:
        """The last block; None when there is none."""
        return self.parts[-1].place(len(self.parts[-1]) - 1) if self.parts else None

    def place_of(self, entry: int) -> BlockPlace | None:
        """The latest block with the entry; None when there is none."""
        for part in reversed(self.parts):
            if entry <= part.last_entry and (place := part.holder(entry)) is not None:
                return place
        return None

    def following(self, entry: int) -> int | None:
        """The first stored entry after `entry`; None when there is none."""
        starts = [
            max(entries.start, entry + 1)
            for part in self.parts
            if part.last_entry > entry
            for entries in part.ranges()
            if entries.stop - 1 > entry
        ]
        return min(starts, default=None)

    def preceding(self, entry: int) -> int | None:
        """The last stored entry before `entry`; None when there is none."""
        ends = [
            min(entries.stop, entry) - 1
            for part in self.parts
            for entries in part.ranges()
            if entries.start < entry
        ]
        return max(ends, default=None)

    def select(self, first: int, last: int, bytes_max: int) -> list[BlockPlace]:
        """The blocks with the entries from `first` on, without a gap.

        Stops at `last`, at a gap, or with the block in which the entries from `first` on reach `bytes_max`.
        Empty when `first` is not stored.
        """
        if not self.is_ascending:
            # One by one: the next entry may be in any block.
            place = self.place_of(first)
            return [] if place is None else [place]
        chosen: list[BlockPlace] = []
        wanted = first
        room = bytes_max
        for part in self.parts:
            if part.last_entry < wanted:
                continue
            row = max(part.find(wanted), 0)
            for at in range(row, len(part)):
                place = part.place(at)
                if not place.first_entry <= wanted <= place.last_entry:
                    return chosen
                chosen.append(place)
                if not room > 0:
                    return chosen
                # The entries before `wanted` in the first block do not count. Their sizes are not known here,
                # so the mean stands in: it only decides how much is read at once.
                skipped = (wanted - place.first_entry) * place.data_bytes // place.entry_count
                room -= place.data_bytes - skipped
                wanted = place.last_entry + 1
                if wanted > last or room <= 0:
                    return chosen
        return chosen

    def check(self) -> None:
        """Asserts the invariants: segments ascend, no part is empty."""
        last_segment = -1
        for part in self.parts:
            part.check()
            assert len(part) > 0
            assert part.segment_id > last_segment
            last_segment = part.segment_id


class Damage(NamedTuple):
    """Bytes that were synced and no longer match their checksum."""

    offset: int
    """Where they begin in the segment."""
    length: int
    ledger_id: LedgerId
    """The ledger of the bytes; -1 for a mark, which has none, UNKNOWN_OWNER when the damage hides it."""
    first_entry: int
    """First lost entry; -1 when unknown."""
    last_entry: int
    """Last lost entry; -1 when unknown."""


class SegmentIndex:
    """The content of one segment, while it is written or after a scan."""

    __slots__ = ("block_count", "damages", "ledgers", "segment_id", "tombstones")

    segment_id: int
    ledgers: dict[LedgerId, BlockRows]
    tombstones: list[LedgerId]
    """Ledgers whose tombstones are in this segment."""
    damages: list[Damage]
    block_count: int
    """Blocks of all kinds."""

    def __init__(self, segment_id: int) -> None:
        self.segment_id = segment_id
        self.ledgers = {}
        self.tombstones = []
        self.damages = []
        self.block_count = 0

    def rows(self, ledger_id: LedgerId) -> BlockRows:
        """The rows of a ledger, created when there are none yet."""
        rows = self.ledgers.get(ledger_id)
        if rows is None:
            rows = self.ledgers[ledger_id] = BlockRows(self.segment_id)
        return rows

    def check(self) -> None:
        """Asserts the invariants of all ledgers' rows; no two blocks may overlap."""
        extents = []
        for rows in self.ledgers.values():
            rows.check()
            assert rows.segment_id == self.segment_id
            extents += [(offset, size) for _, offset, size, _, _ in _ROW.iter_unpack(rows.rows)]
        extents.sort()
        assert all(a + size <= b for (a, size), (b, _) in pairwise(extents))
        assert len(extents) + len(self.tombstones) <= self.block_count
