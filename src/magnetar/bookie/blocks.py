"""Blocks: the unit in which entries lie on disk.

A block holds consecutive entries of one ledger that were appended together. Its header carries two
CRC32C sums: one over the header itself, so that the length and the owner of a damaged body are still
known, and one over the body. All numbers are little-endian.

    offset width field
    0      4     magic           "MGB1"
    4      4     header_crc      CRC32C of bytes 8..96
    8      8     salt            the segment's salt: bytes of a former life of the file never match
    16     4     body_crc        CRC32C of the body
    20     4     body_length     bytes of the body
    24     8     ledger_id       i64
    32     8     first_entry     i64; entry id of the first entry
    40     8     base_index      i64; index of the first message (PIP-70)
    48     8     broker_time_ms  i64; Unix milliseconds (PIP-70)
    56     4     entry_count     entries in the body
    60     2     kind            see Kind
    62     2     flags           1 = the table has message counts
    64     4     offset          where the block starts in the segment: a misplaced block never matches
    68     4     synced_to       the segment was synced up to here before this block was written
    72     4     previous_offset start of the block before this one; 0 for the first
    76     4     previous_size   size of that block, header included; 0 for the first
    80     8     previous_ledger i64; its ledger, -1 for none: names the owner of a lost header
    88     8     previous_last   i64; its last entry, -1 for none

    body   table of entry lengths, u32 * entry_count
           table of message counts, u32 * entry_count; absent when each entry is one message
           the entries' bytes, one after the other

One header and one sum per block, not per entry, is what makes unbatched publishing cheap.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import google_crc32c

from magnetar.base.entries import EntryRun
from magnetar.base.ids import NO_LEDGER, LedgerId

MAGIC: Final = b"MGB1"

_CHECKED: Final = struct.Struct("<QIIqqqqIHHIIIIqq")
_SEALED: Final = struct.Struct("<4sI")
HEADER_BYTES: Final = _SEALED.size + _CHECKED.size
assert HEADER_BYTES == 96
SALT_AT: Final = 8

HAS_COUNTS: Final = 1

_COUNT: Final = struct.Struct("<I")
_crc = google_crc32c.value
_crc_extend = google_crc32c.extend


class BlockKind(IntEnum):
    """What a block contains."""

    ENTRIES = 0
    """Entries of a ledger."""
    MARK = 1
    """Only `synced_to`: written when the store goes idle, to tell damage from a torn tail."""
    TOMBSTONE = 2
    """A deleted ledger, in whatever segment its entries are."""
    START = 3
    """First block of a segment; the body names where the previous segment ended: id u64, end u32."""


# Looking up a member of an Enum costs as much as packing a number.
_ENTRIES: Final = int(BlockKind.ENTRIES)


class BlockHeader(NamedTuple):
    """The checked fields, in the order of the table above."""

    salt: int
    body_crc: int
    body_length: int
    ledger_id: LedgerId
    first_entry: int
    base_index: int
    broker_time_ms: int
    entry_count: int
    kind: int
    flags: int
    offset: int
    synced_to: int
    previous_offset: int
    previous_size: int
    previous_ledger: LedgerId
    previous_last: int

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return HEADER_BYTES + self.body_length

    @property
    def last_entry(self) -> int:
        """Entry id of the last entry; `first_entry - 1` when there is none."""
        return self.first_entry + self.entry_count - 1

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables in front of the entries."""
        return self.entry_count * (8 if self.flags & HAS_COUNTS else 4)

    @property
    def data_bytes(self) -> int:
        """Bytes of the entries alone."""
        return self.body_length - self.table_bytes


class BlockBody:
    """The bytes after a block's header, in the pieces that they were made of, with their checksum."""

    __slots__ = ("crc", "data_bytes", "flags", "length", "pieces")

    def __init__(self, pieces: list[bytes], data_bytes: int = 0, flags: int = 0) -> None:
        """`data_bytes`: of the entries alone; `flags`: what tables are in front of them."""
        self.pieces = pieces
        self.data_bytes = data_bytes
        self.flags = flags
        if len(pieces) == 1:
            self.crc = _crc(pieces[0])
            self.length = len(pieces[0])
            return
        crc = 0
        length = 0
        for piece in pieces:
            crc = _crc_extend(crc, piece)
            length += len(piece)
        self.crc = crc
        self.length = length


class GatheredEntries:
    """Entries that came one by one and share a block, until its commit begins.

    Each of them costs a slot in a list. A block of its own is a header, two checksums and a row of the index.
    """

    __slots__ = ("counts", "entries", "next_index")

    def __init__(self, body: BlockBody, base_index: int) -> None:
        """`body` holds one entry, in one piece; `base_index` is that of its first message."""
        table = 8 if body.flags & HAS_COUNTS else 4
        self.entries = [body.pieces[0][table:]]
        self.counts = list(_COUNT.unpack_from(body.pieces[0], 4)) if body.flags & HAS_COUNTS else None
        self.next_index: int = base_index + (1 if self.counts is None else self.counts[0])
        """Index of the message that would follow."""


class Block:
    """A block without a place: the body is final once its commit begins, the header needs its offset."""

    __slots__ = (
        "base_index",
        "body",
        "broker_time_ms",
        "data_bytes",
        "entry_count",
        "first_entry",
        "gathered",
        "kind",
        "ledger_id",
        "size",
        "waits",
    )

    def __init__(
        self,
        kind: int,
        ledger_id: LedgerId,
        first_entry: int,
        entry_count: int,
        base_index: int,
        broker_time_ms: int,
        body: BlockBody,
    ) -> None:
        self.kind = kind
        self.ledger_id = ledger_id
        self.first_entry = first_entry
        self.entry_count = entry_count
        self.base_index = base_index
        self.broker_time_ms = broker_time_ms
        self.body = body
        self.data_bytes = body.data_bytes
        """Bytes of the entries alone."""
        self.size = HEADER_BYTES + body.length
        """Bytes of the whole block."""
        self.gathered: GatheredEntries | None = None
        """What becomes the body, when entries joined the first one (`entry_blocks.py`)."""
        self.waits = True
        """Whether its commit has not begun."""

    @property
    def last_entry(self) -> int:
        """Entry id of the last entry; `first_entry - 1` when there is none."""
        return self.first_entry + self.entry_count - 1

    def header(
        self,
        salt: int,
        offset: int,
        synced_to: int,
        previous_offset: int,
        previous_size: int,
        previous_ledger: LedgerId,
        previous_last: int,
    ) -> bytes:
        """The 96 bytes of the header, for a block that starts at `offset`."""
        body = self.body
        checked = _CHECKED.pack(
            salt,
            body.crc,
            body.length,
            self.ledger_id,
            self.first_entry,
            self.base_index,
            self.broker_time_ms,
            self.entry_count,
            self.kind,
            body.flags,
            offset,
            synced_to,
            previous_offset,
            previous_size,
            previous_ledger,
            previous_last,
        )
        return _SEALED.pack(MAGIC, _crc(checked)) + checked


def mark_block() -> Block:
    """A block that only records how far the segment is synced."""
    return Block(BlockKind.MARK, NO_LEDGER, 0, 0, 0, 0, BlockBody([]))


def tombstone_block(ledger_id: LedgerId) -> Block:
    """A block that records that the ledger is deleted."""
    return Block(BlockKind.TOMBSTONE, ledger_id, 0, 0, 0, 0, BlockBody([]))


_START: Final = struct.Struct("<QI")


def start_block(previous_segment: int, previous_end: int) -> Block:
    """The first block of a segment: `previous_segment` is complete up to `previous_end`."""
    body = BlockBody([_START.pack(previous_segment, previous_end)])
    return Block(BlockKind.START, NO_LEDGER, 0, 0, 0, 0, body)


def decode_start(body: bytes) -> tuple[int, int]:
    """The arguments of `start_block`, from the block's body."""
    segment_id, end = _START.unpack(body)
    return segment_id, end


def decode_header(buffer: bytes, at: int, salt: int, offset: int) -> BlockHeader | None:
    """The header at `buffer[at:]` when it is intact and belongs at `offset` of the segment; else None."""
    if len(buffer) - at < HEADER_BYTES:
        return None
    magic, crc = _SEALED.unpack_from(buffer, at)
    if magic != MAGIC:
        return None
    checked = buffer[at + _SEALED.size : at + HEADER_BYTES]
    if _crc(checked) != crc:
        return None
    header = BlockHeader._make(_CHECKED.unpack(checked))
    if header.salt != salt or header.offset != offset:
        return None
    return header


Found = tuple[int, LedgerId, int, int, int, int, int]
"""Fields of a block: kind, ledger_id, first_entry, offset, size, entry_count, data_bytes."""


def good_blocks(buffer: bytes, salt: int, offset: int, stop: int) -> tuple[list[Found], int]:
    """The consecutive good blocks at the start of `buffer`, which begins at `offset` of the segment, and
    their total bytes.

    Ends at the first bad block, or at a block that begins at `stop` or later. Does the checks of
    `decode_header` and `body_is_good` inline, because it runs over every block of a segment while a start
    waits.
    """
    found: list[Found] = []
    unpack_sealed, unpack_checked, crc = _SEALED.unpack_from, _CHECKED.unpack, _crc
    at, end = 0, len(buffer)
    while at + HEADER_BYTES <= end and offset + at < stop:
        magic, header_crc = unpack_sealed(buffer, at)
        body_at = at + HEADER_BYTES
        checked = buffer[at + 8 : body_at]
        if magic != MAGIC or crc(checked) != header_crc:
            break
        fields = unpack_checked(checked)
        its_salt, body_crc, length, ledger_id, first, _, _, count, kind, flags, its_offset = fields[:11]
        body = buffer[body_at : body_at + length]
        if its_salt != salt or its_offset != offset + at or len(body) != length or crc(body) != body_crc:
            break
        data_bytes = 0
        if kind == _ENTRIES:
            data_bytes = length - count * (8 if flags & HAS_COUNTS else 4)
            if count < 1 or data_bytes < 0:
                break
            # One entry: nearly always the case where there are very many blocks.
            lengths = int.from_bytes(body[:4], "little") if count == 1 else sum(unpack_lengths(count, body))
            if lengths != data_bytes:
                break
        found.append((kind, ledger_id, first, its_offset, length + HEADER_BYTES, count, data_bytes))
        at = body_at + length
    return found, at


def unpack_lengths(count: int, body: bytes) -> tuple[int, ...]:
    """The table of entry lengths at the start of a body."""
    return struct.unpack_from(f"<{count}I", body)


def first_salt(buffer: bytes, offset: int) -> int | None:
    """The salt in the block header at the start of `buffer`, not verified; None without a whole header."""
    if len(buffer) < HEADER_BYTES:
        return None
    salt: int = _CHECKED.unpack_from(buffer, _SEALED.size)[0]
    return None if decode_header(buffer, 0, salt, offset) is None else salt


def body_is_good(header: BlockHeader, body: bytes) -> bool:
    """Whether `body` is what was written with `header`: its checksum, and the table that describes it."""
    if len(body) != header.body_length or _crc(body) != header.body_crc:
        return False
    if header.kind != _ENTRIES:
        return True
    table = header.table_bytes
    if header.entry_count < 1 or table > len(body):
        return False
    return table + sum(unpack_lengths(header.entry_count, body)) == header.body_length


def decode_entries(header: BlockHeader, body: bytes) -> EntryRun:
    """The entries of a body for which `body_is_good` holds."""
    number = header.entry_count
    ends = list(accumulate(unpack_lengths(number, body), initial=header.table_bytes))
    counts = None
    if header.flags & HAS_COUNTS:
        counts = list(struct.unpack_from(f"<{number}I", body, 4 * number))
    return EntryRun(
        header.ledger_id,
        header.first_entry,
        [body[start:stop] for start, stop in pairwise(ends)],
        counts,
        header.base_index,
        header.broker_time_ms,
    )
