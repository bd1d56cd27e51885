"""Frame shapes: what consecutive payload frames have in common, so that one C call cuts a frame's head.

Frames of one producer, or to one consumer, that follow each other differ in little: the total size, the low
seven bits of one varint (sequence id, entry id), and the entry. A shape remembers the bytes on both sides of
that one byte and a `struct.Struct` that cuts the head of a frame at these places:

    totalSize u32 | prefix: commandSize and the command up to the varint | low bits u8
    | tail: rest of the varint, of the command (a batch's size), and 0x0e01 | CRC32C u32 | metadataSize u32

When `prefix` and `tail` are equal to what is remembered, the frame is of this shape and everything in it
is known. 128 ids later the tail changes, and a new shape is learned from a frame whose fields were read
one by one. A parser keeps one shape per key, the first bytes behind `totalSize`, which say whose frame it
is: so producers that take turns are recognised, too.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

ENTRY_HEAD_BYTES: Final = 10
"""Magic, checksum and metadata size in front of an entry's metadata."""


KEY_BYTES: Final = 11
"""commandSize, type, tag, size and the first field's tag take 9 bytes; two more hold ids up to 16383."""

SHAPES_MAX: Final = 1024
"""A parser with more shapes forgets all of them: a client must not fill the memory with ids."""


class FrameShape:
    """The shape of a frame; see the module's docstring."""

    __slots__ = (
        "count",
        "entry_at",
        "flag",
        "head_bytes",
        "high",
        "metadata_max",
        "owner",
        "prefix",
        "tail",
        "unpack_from",
    )

    owner: int
    """Producer or consumer id."""
    count: int
    """Messages of each frame that the command names: SENDs only."""
    prefix: bytes
    tail: bytes
    flag: int
    """Bit 7 of the low byte, set when the varint continues. `low ^ flag` is above 127 in any other frame."""
    high: int
    """Bits of the id above the low seven."""
    entry_at: int
    """Offset of the entry in a frame."""
    head_bytes: int
    """Bytes that `unpack_from` reads: totalSize, prefix, low, tail, CRC32C, metadataSize."""
    metadata_max: int
    """totalSize plus this is the largest metadata size that fits the frame."""

    def __init__(
        self, owner: int, value: int, data: bytes, at: int, low_at: int, stop: int, count: int = 1
    ) -> None:
        """From the frame at `data[at]` with the varint of `value` at `low_at` and its entry at `stop`.

        The entry starts with 0x0e01; `data` reaches at least two bytes beyond `stop`.
        """
        self.owner = owner
        self.count = count
        self.high = value & ~0x7F
        self.flag = data[low_at] & 0x80
        self.prefix = data[at + 4 : low_at]
        self.tail = data[low_at + 1 : stop + 2]
        layout = _layout(len(self.prefix), len(self.tail))
        self.unpack_from = layout.unpack_from
        self.head_bytes = layout.size
        self.entry_at = stop - at
        self.metadata_max = 4 - self.entry_at - ENTRY_HEAD_BYTES


@lru_cache(maxsize=256)
def _layout(prefix_bytes: int, tail_bytes: int) -> struct.Struct:
    return struct.Struct(f">I{prefix_bytes}sB{tail_bytes}sII")
