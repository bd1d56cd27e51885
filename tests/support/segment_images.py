"""Segments built in memory, for tests of what is found in them."""

from __future__ import annotations

from functools import cache

from magnetar.bookie.blocks import Block, mark_block
from magnetar.bookie.commit import Tail
from magnetar.bookie.entry_blocks import blocks_of
from magnetar.bookie.recovery import Scan, SegmentBytes, scan_segment
from magnetar.bookie.segment import DATA_OFFSET, encode_segment_header

SALT = 0x1122334455667788
INSTANCE = bytes(range(16))


class Image:
    """A segment file as bytes, written group by group."""

    def __init__(
        self, size: int = 64 << 10, salt: int = SALT, segment_id: int = 1, former: bytes = b""
    ) -> None:
        """`former`: what the file holds of its life before; zeros where that is nothing."""
        self.former = former.ljust(size, b"\0")
        self.bytes = bytearray(self.former)
        self.salt = salt
        self.segment_id = segment_id
        self.bytes[:DATA_OFFSET] = encode_segment_header(segment_id, INSTANCE, salt)
        self.tail = Tail(segment_id, salt, DATA_OFFSET, size)
        self.places: list[tuple[Block, int]] = []
        """Every block and its offset, in the order of writing."""

    def write(self, *blocks: Block) -> int:
        """Writes one group and returns where it begins."""
        start = self.tail.offset
        offsets, pieces = self.tail.place(list(blocks))
        data = b"".join(pieces)
        self.bytes[start : start + len(data)] = data
        self.tail.advance(len(data), len(blocks))
        self.places += zip(blocks, offsets, strict=True)
        return start

    @property
    def end(self) -> int:
        """Where the next block goes."""
        return self.tail.offset

    def scan(self, data: bytes | None = None, synced_end: int = 0) -> Scan:
        """Scans the image, or `data` in its place."""
        image = bytes(self.bytes) if data is None else data

        def next_data(offset: int) -> int | None:
            return offset if any(image[offset:]) else None

        return scan_segment(
            self.segment_id,
            self.salt,
            SegmentBytes(len(image), lambda offset, length: image[offset : offset + length], next_data),
            synced_end,
        )


@cache
def former_life() -> bytes:
    """A file full of good blocks, small and large, which another salt tells from those to come."""
    image = Image(salt=0x0102030405060708)
    entry = 0
    while image.tail.room_bytes > 4096:
        image.write(entries(0, entry, bytes([entry % 7]) * (entry % 60)), mark_block())
        entry += 1
    return bytes(image.bytes)


def entries(ledger_id: int, first: int, *values: bytes, counts: list[int] | None = None) -> Block:
    """One block of entries."""
    (block,) = blocks_of(ledger_id, first, list(values), counts, 1000 + first, 5_000 + first)
    return block


def found(scan: Scan) -> dict[int, list[tuple[int, int]]]:
    """What a scan found: ledger to (first, last) of its blocks."""
    return {
        ledger_id: [(rows.place(i).first_entry, rows.place(i).last_entry) for i in range(len(rows))]
        for ledger_id, rows in scan.found.ledgers.items()
    }
