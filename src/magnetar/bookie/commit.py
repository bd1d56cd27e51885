"""Group commit: which blocks are written together, and at which offsets.

    append ──► waiting ──take()──► one group in flight ──done()──► durable
                  ▲                        │
                  └── blocks that arrive while a sync runs join the next group

At most one group is in flight, so everything before a group is synced when the group is laid out: each
block's `synced_to` records that, and recovery relies on it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from magnetar.base.ids import NO_LEDGER
from magnetar.bookie.blocks import HEADER_BYTES, Block, BlockKind
from magnetar.bookie.entry_blocks import finish
from magnetar.bookie.index import SegmentIndex

GROUP_BYTES_MAX: Final = 8 << 20
"""Bytes of a group: bounds the time of one write, and is far above the size that amortises a sync."""
GROUP_BLOCKS_MAX: Final = 1_024
"""Blocks of a group: their writers are notified in one go, about 30 µs each when every block belongs to
another topic. Without the limit a backlog of small messages blocks the loop for seconds."""


class Tail:
    """The end of the active segment: assigns offsets to blocks."""

    __slots__ = ("_previous", "block_count", "limit", "offset", "salt", "segment_id")

    def __init__(self, segment_id: int, salt: int, offset: int, limit: int) -> None:
        self.segment_id = segment_id
        self.salt = salt
        self.offset = offset
        """Offset of the next block; everything before it is synced."""
        self.limit = limit
        """Upper bound of the end of a block."""
        self.block_count = 0
        self._previous = (0, 0, NO_LEDGER, -1)

    @property
    def room_bytes(self) -> int:
        """Bytes that still fit."""
        return self.limit - self.offset

    def place(self, blocks: list[Block]) -> tuple[list[int], list[bytes]]:
        """Lays out `blocks` one after the other: their offsets, and the pieces to write from `offset` on."""
        synced_to = at = self.offset
        salt = self.salt
        previous_offset, previous_size, previous_ledger, previous_last = self._previous
        offsets: list[int] = []
        pieces: list[bytes] = []
        for block in blocks:
            offsets.append(at)
            pieces.append(
                block.header(
                    salt, at, synced_to, previous_offset, previous_size, previous_ledger, previous_last
                )
            )
            pieces += block.body.pieces
            previous_offset, previous_size = at, HEADER_BYTES + block.body.length
            if block.kind == BlockKind.ENTRIES:
                previous_ledger, previous_last = block.ledger_id, block.last_entry
            else:
                previous_ledger, previous_last = NO_LEDGER, -1
            at += previous_size
        assert at <= self.limit
        self._previous = (previous_offset, previous_size, previous_ledger, previous_last)
        return offsets, pieces

    def advance(self, size: int, block_count: int) -> None:
        """The blocks placed last, `size` bytes together, are durable."""
        self.offset += size
        self.block_count += block_count
        assert self.offset <= self.limit

    def check(self, segment_id: int, index: SegmentIndex | None) -> None:
        """Asserts the invariants of the segment's end."""
        assert index is not None, "the active segment is not indexed"
        assert self.segment_id == segment_id, "the tail is of another segment"
        assert self.offset <= self.limit, "written behind the end of the segment"
        index.check()


class CommitQueue:
    """Blocks that wait for a group, and the group in flight."""

    __slots__ = ("_waiting", "in_flight", "in_flight_bytes", "waiting_bytes")

    def __init__(self) -> None:
        self._waiting: deque[Block] = deque()
        self.waiting_bytes = 0
        self.in_flight: list[Block] = []
        self.in_flight_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, block: Block) -> None:
        """Appends a block."""
        self._waiting.append(block)
        self.waiting_bytes += block.size

    def grew(self, size_bytes: int) -> None:
        """A waiting block got more entries, of so many bytes in the block."""
        self.waiting_bytes += size_bytes

    def add_first(self, block: Block) -> None:
        """Puts a block before all waiting ones."""
        self._waiting.appendleft(block)
        self.waiting_bytes += block.size

    @property
    def first_bytes(self) -> int:
        """Size of the next block; 0 when none waits."""
        return self._waiting[0].size if self._waiting else 0

    def take(self, room_bytes: int, count_max: int) -> list[Block]:
        """Takes the next group, which is in flight from then on.

        As many blocks as fit `room_bytes`, GROUP_BYTES_MAX (one block always does), GROUP_BLOCKS_MAX and
        `count_max`; empty when the first block exceeds `room_bytes`.
        """
        assert not self.in_flight
        waiting = self._waiting
        group: list[Block] = []
        size = 0
        count_max = min(count_max, GROUP_BLOCKS_MAX)
        while waiting and len(group) < count_max:
            block_size = waiting[0].size
            if size + block_size > room_bytes or (group and size + block_size > GROUP_BYTES_MAX):
                break
            block = waiting.popleft()
            block.waits = False
            if block.gathered is not None:
                finish(block)
            group.append(block)
            size += block_size
        self.in_flight = group
        self.in_flight_bytes = size
        self.waiting_bytes -= size
        return group

    def done(self) -> None:
        """The group in flight is durable."""
        assert self.in_flight
        self.in_flight = []
        self.in_flight_bytes = 0

    def refuse_entries(self) -> list[Block]:
        """Removes and returns the waiting blocks with entries; tombstones stay, because deletions free
        space."""
        assert not self.in_flight
        refused = [block for block in self._waiting if block.kind == BlockKind.ENTRIES]
        self._waiting = deque(block for block in self._waiting if block.kind == BlockKind.TOMBSTONE)
        self.waiting_bytes = sum(block.size for block in self._waiting)
        return refused

    def fail(self) -> list[Block]:
        """Removes and returns all blocks, in flight and waiting, in order."""
        blocks = [*self.in_flight, *self._waiting]
        self.in_flight = []
        self.in_flight_bytes = 0
        self._waiting.clear()
        self.waiting_bytes = 0
        return blocks

    def check(self) -> None:
        """Asserts the invariants: the byte counts are the sums of the blocks."""
        assert self.waiting_bytes == sum(block.size for block in self._waiting)
        assert self.in_flight_bytes == sum(block.size for block in self.in_flight)
