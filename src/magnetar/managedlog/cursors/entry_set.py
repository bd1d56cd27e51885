"""A set of entry ids of one ledger, kept as bitmaps.

Acknowledged entries of a Shared subscription are anything from one long run to tens of thousands of
holes in random order. Sorted intervals make an insertion in the middle move everything behind it
(tens of microseconds at 50,000 holes); here an entry is one bit of one 1024-bit integer, whatever its
neighbours are, and a run of full chunks shares one integer.

Pure: no input or output, no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

CHUNK_BITS: Final = 1024
"""Entries per chunk. Larger chunks copy more per insertion, smaller ones cost more dictionary slots."""
SHIFT: Final = 10
MASK: Final = CHUNK_BITS - 1
FULL: Final = (1 << CHUNK_BITS) - 1


class EntrySet:
    """Entry ids >= 0 of one ledger. Insertion, lookup and the next gap are O(1) for nearby entries."""

    __slots__ = ("_low", "chunks", "count")

    chunks: dict[int, int]
    """Chunk number to bitmap, lowest entry in the lowest bit; never 0."""
    count: int
    """Entries in the set."""

    def __init__(self) -> None:
        self.chunks = {}
        self.count = 0
        # No chunk has a lower number, so that removing from below does not scan all of them.
        self._low = 0

    @classmethod
    def of_bits(cls, bits: int) -> EntrySet:
        """The entries whose bits are set, lowest first."""
        made = cls()
        # Shifting a long integer chunk by chunk would take the square of its length.
        data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        size = CHUNK_BITS // 8
        for start in range(0, len(data), size):
            made.add_chunk(start // size, int.from_bytes(data[start : start + size], "little"))
        return made

    def bits(self) -> int:
        """The inverse of `of_bits`."""
        data = bytearray((self.last() + 8) // 8)
        for number, chunk in self.chunks.items():
            start = number * (CHUNK_BITS // 8)
            part = chunk.to_bytes(CHUNK_BITS // 8, "little")[: len(data) - start]
            data[start : start + len(part)] = part
        return int.from_bytes(data, "little")

    def __len__(self) -> int:
        return self.count

    def __contains__(self, entry_id: int) -> bool:
        return (self.chunks.get(entry_id >> SHIFT, 0) >> (entry_id & MASK)) & 1 == 1

    def add(self, entry_id: int) -> bool:
        """Adds one entry >= 0; returns whether it is new."""
        number = entry_id >> SHIFT
        chunk = self.chunks.get(number, 0)
        bit = 1 << (entry_id & MASK)
        if chunk & bit:
            return False
        self.chunks[number] = chunk | bit
        self.count += 1
        if number < self._low:
            self._low = number
        return True

    def discard(self, entry_id: int) -> bool:
        """Removes one entry >= 0; returns whether it was there."""
        number = entry_id >> SHIFT
        chunk = self.chunks.get(number, 0)
        bit = 1 << (entry_id & MASK)
        if not chunk & bit:
            return False
        if chunk == bit:
            del self.chunks[number]
        else:
            self.chunks[number] = chunk ^ bit
        self.count -= 1
        return True

    def add_range(self, first: int, last: int) -> None:
        """Adds `first..last`, inclusive; nothing when `last < first`."""
        assert first >= 0
        while first <= last:
            number = first >> SHIFT
            stop = min(last, (number << SHIFT) + MASK)
            self.add_chunk(number, ((1 << (stop - first + 1)) - 1) << (first & MASK))
            first = stop + 1

    def add_chunk(self, number: int, bits: int) -> None:
        """Adds every entry whose bit is set in `bits`, 0 <= bits <= FULL, of chunk `number`."""
        assert 0 <= bits <= FULL
        if not bits:
            return
        old = self.chunks.get(number, 0)
        new = old | bits
        self.chunks[number] = FULL if new == FULL else new
        self.count += new.bit_count() - old.bit_count()
        self._low = min(self._low, number)

    def add_full(self, number: int, count: int) -> None:
        """Adds all entries of `count` chunks from chunk `number` on. Millions, as a stored value may
        have, take a fraction of a second."""
        whole = dict.fromkeys(range(number, number + count), FULL)
        known = sum([self.chunks[each].bit_count() for each in whole.keys() & self.chunks.keys()])
        self.chunks.update(whole)
        self.count += count * CHUNK_BITS - known
        self._low = min(self._low, number)

    def remove_upto(self, entry_id: int) -> None:
        """Removes every entry <= `entry_id`."""
        if entry_id < 0 or not self.chunks:
            return
        number = entry_id >> SHIFT
        chunks = self.chunks
        if number > self._low:
            if number - self._low > len(chunks):
                below = [key for key in chunks if key < number]
            else:
                below = [key for key in range(self._low, number) if key in chunks]
            for key in below:
                self.count -= chunks.pop(key).bit_count()
            self._low = number
        chunk = chunks.get(number)
        if chunk is None:
            return
        kept = (chunk >> ((entry_id & MASK) + 1)) << ((entry_id & MASK) + 1)
        self.count -= chunk.bit_count() - kept.bit_count()
        if kept:
            chunks[number] = kept
        else:
            del chunks[number]

    def next_missing(self, entry_id: int) -> int:
        """The first id >= `entry_id` >= 0 that is not in the set."""
        number = entry_id >> SHIFT
        missing = ~self.chunks.get(number, 0) >> (entry_id & MASK)
        offset = (missing & -missing).bit_length() - 1
        if (entry_id & MASK) + offset < CHUNK_BITS:
            return entry_id + offset
        # The rest of this chunk is full; whole chunks follow until one is not.
        number += 1
        while self.chunks.get(number, 0) == FULL:
            number += 1
        missing = ~self.chunks.get(number, 0)
        return (number << SHIFT) + (missing & -missing).bit_length() - 1

    def last(self) -> int:
        """The largest id; -1 when there is none. Cost: the number of chunks."""
        if not self.chunks:
            return -1
        number = max(self.chunks)
        return (number << SHIFT) + self.chunks[number].bit_length() - 1

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Maximal runs `(first, last)`, inclusive, ascending."""
        start = stop = -1
        for number in sorted(self.chunks):
            bits = self.chunks[number]
            base = number << SHIFT
            offset = 0
            while bits:
                zeros = (bits & -bits).bit_length() - 1
                bits >>= zeros
                ones = (~bits & (bits + 1)).bit_length() - 1
                first = base + offset + zeros
                bits >>= ones
                offset += zeros + ones
                if first == stop + 1 and start >= 0:
                    stop = first + ones - 1
                    continue
                if start >= 0:
                    yield start, stop
                start, stop = first, first + ones - 1
        if start >= 0:
            yield start, stop

    def check(self) -> None:
        """Asserts the invariants."""
        assert all(0 < bits <= FULL for bits in self.chunks.values())
        assert all(number >= self._low >= 0 for number in self.chunks)
        assert self.count == sum(bits.bit_count() for bits in self.chunks.values())
