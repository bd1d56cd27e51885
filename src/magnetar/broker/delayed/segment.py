"""A segment: delivery times and positions on disk, about in order of time. Pure.

A segment is one ledger. Entries 0 to n - 1 are chunks, entry n is the foot; all little-endian.

    chunk   { time u64 (Unix ms) | number of the ledger u24, entry id u40 }      at most CHUNK_RECORDS
    foot    "MDS2" | chunks u32 | ledgers u32 | records u64
            ledger ids i64 …                        a record's ledger number is the place in this list
            smallest time in each chunk and all after it u64 …
            acknowledged-entries form of all positions (managedlog/cursors/entry_set_codec.py)

Each record says something that is true for ever: this entry wants to be delivered at that time. So nothing
is lost with a segment: its entries are read from the log again.
"""

from __future__ import annotations

import heapq
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import StorageError
from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.broker.delayed.positions import PositionSet
from magnetar.broker.delayed.wheel import ENTRY_BITS, ENTRY_MASK
from magnetar.managedlog.cursors import entry_set_codec
from magnetar.managedlog.cursors.entry_set import EntrySet

CHUNK_RECORDS: Final = 2_048
"""Records that are read, and noted, in one go: some milliseconds of work."""
_RUN: Final = 4_096
"""Records that are sorted in one go."""
_MAGIC: Final = b"MDS2"
_FORMER_MAGIC: Final = b"MDS1"
"""Named as the first time of a chunk that of its first record, which need not be the smallest."""
_FOOT: Final = struct.Struct("<4sIIQ")


class BadSegmentError(StorageError):
    """The bytes are not a segment's."""


@dataclass(slots=True)
class DelayedSegment:
    """The part of a segment that stays in memory."""

    ledger_id: LedgerId
    first_times: array[int]
    """Smallest time in each chunk and all after it, Unix ms: what is in order within a slot of the wheel need
    not be so between a wide slot and the narrow ones that it reaches over."""
    ledgers: list[LedgerId]
    """Ledger ids by number."""
    last: Position
    """The highest position."""
    next_chunk: int = 0
    """Chunks before it were read."""

    @property
    def next_ms(self) -> int:
        """First time in what was not read."""
        return self.first_times[self.next_chunk]

    @property
    def left(self) -> int:
        """Chunks that were not read."""
        return len(self.first_times) - self.next_chunk

    def records(self, chunk: bytes) -> Iterator[tuple[int, Position]]:
        """Delivery times and positions of a chunk. Raises BadSegmentError."""
        if len(chunk) % 16:
            raise BadSegmentError("a chunk is cut off")
        for time_ms, packed in struct.iter_unpack("<QQ", chunk):
            number = packed >> ENTRY_BITS
            if number >= len(self.ledgers):
                raise BadSegmentError(f"there is no ledger number {number}")
            yield time_ms, Position(self.ledgers[number], packed & ENTRY_MASK)


def decode_foot(ledger_id: LedgerId, data: bytes) -> tuple[DelayedSegment, dict[LedgerId, EntrySet]]:
    """A segment and the positions in it, from its last entry. Raises BadSegmentError."""
    try:
        magic, chunks, ledgers, _ = _FOOT.unpack_from(data)
        if magic not in (_MAGIC, _FORMER_MAGIC):
            raise BadSegmentError("it does not begin as the foot of a segment")
        numbers = struct.unpack_from(f"<{ledgers}q", data, _FOOT.size)
        times = struct.unpack_from(f"<{chunks}Q", data, _FOOT.size + 8 * ledgers)
        positions = entry_set_codec.decode(data[_FOOT.size + 8 * (ledgers + chunks) :])
    except (struct.error, entry_set_codec.MalformedAckedError) as error:
        raise BadSegmentError(str(error)) from error
    if magic == _FORMER_MAGIC:
        # All of it is read soon, and what is far away is written down again.
        times = (0,) * chunks
    found = PositionSet()
    found.update(positions)
    return DelayedSegment(ledger_id, array("Q", times), list(numbers), found.last), positions


class Sealing:
    """Entries on their way from memory to disk."""

    def __init__(self, parts: list[array[int]], ledgers: list[LedgerId], chunk_records: int) -> None:
        """Parts and ledgers as `TimeWheel.take_after` gave them."""
        self._chunk_records = chunk_records
        self._parts = parts
        self._ledgers = ledgers
        self.entries: list[bytes] = []
        """Entries of the ledger to write, once `encode` is exhausted."""
        self._first_times = array("Q")
        self._last = EARLIEST
        self._chunk = array("Q")

    def __len__(self) -> int:
        return sum(len(part) // 2 for part in self._parts)

    def records(self) -> Iterator[tuple[int, Position]]:
        """Delivery times and positions, to take them back."""
        for part in self._parts:
            for i in range(0, len(part), 2):
                packed = part[i + 1]
                yield part[i], Position(self._ledgers[packed >> ENTRY_BITS], packed & ENTRY_MASK)

    def encode(self) -> Iterator[None]:
        """Does the work in pieces of some milliseconds."""
        positions: dict[LedgerId, EntrySet] = {}
        for part in self._parts:
            runs: list[list[tuple[int, int]]] = []
            for start in range(0, len(part), 2 * _RUN):
                piece = part[start : start + 2 * _RUN]
                runs.append(sorted(zip(piece[::2], piece[1::2], strict=True)))
                yield
            for record in heapq.merge(*runs) if len(runs) > 1 else iter(runs[0]):
                self._chunk.extend(record)
                if len(self._chunk) == 2 * self._chunk_records:
                    self._end_chunk(positions)
                    yield
        self._end_chunk(positions)
        times_in_order = self._first_times
        for i in range(len(times_in_order) - 1, 0, -1):
            times_in_order[i - 1] = min(times_in_order[i - 1], times_in_order[i])
        self._last = max((Position(known, _highest(found)) for known, found in positions.items()))
        head = _FOOT.pack(_MAGIC, len(self._first_times), len(self._ledgers), len(self))
        numbers = struct.pack(f"<{len(self._ledgers)}q", *self._ledgers)
        times = struct.pack(f"<{len(self._first_times)}Q", *self._first_times)
        self.entries.append(head + numbers + times + entry_set_codec.encode(positions))

    def _end_chunk(self, positions: dict[LedgerId, EntrySet]) -> None:
        chunk, self._chunk = self._chunk, array("Q")
        if not chunk:
            return
        # Not the first: narrow slots begin at the end of the wide one that overlaps them.
        self._first_times.append(min(chunk[::2]))
        for packed in chunk[1::2]:
            ledger_id = self._ledgers[packed >> ENTRY_BITS]
            entries = positions.get(ledger_id)
            if entries is None:
                entries = positions[ledger_id] = EntrySet()
            entries.add(packed & ENTRY_MASK)
        if sys.byteorder == "big":
            chunk.byteswap()
        self.entries.append(chunk.tobytes())

    def segment(self, ledger_id: LedgerId) -> DelayedSegment:
        """The part that stays in memory once the segment is written to this ledger."""
        return DelayedSegment(ledger_id, self._first_times, self._ledgers, self._last)


def _highest(entries: EntrySet) -> int:
    number = max(entries.chunks)
    return (number << 10) + entries.chunks[number].bit_length() - 1
