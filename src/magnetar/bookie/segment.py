"""Segment files: the header in front, the footer of a sealed one behind the blocks.

    offset  width field
    0       8     magic        "MGSEGMNT"
    8       4     version      of the format: 1
    12      8     segment_id   ascending; also the file's name, as 16 hex digits
    20      16    instance     the store's instance id: a segment of another store is refused
    36      8     salt         random; every block of this life of the file carries it
    44      4     crc          CRC32C of bytes 0..44
    48      2000  zero
    2048    16    checkpoint   of an active segment, see below; zero at first
    2064    2032  zero         blocks begin at 4096

The checkpoint says up to where the log was synced when it was idle last, far from the log's end: damage there
that takes the last blocks and the mark behind them would look as if nothing had ever been written.

    0       8     salt         that of the header
    8       4     synced_to    the log was synced up to here
    12      4     crc          CRC32C of bytes 0..12

A sealed segment ends with a footer, right behind the last block:

    rows        24 bytes per block (see index.py), grouped by ledger, ledgers ascending
    directory   ledger ids i64 * L, first rows u32 * L, row counts u32 * L, CRC32C of the rows u32 * L
    tombstones  ledger ids i64 * T
    damages     offset u32, length u32, ledger i64, first entry i64, last entry i64; * D
    trailer     64 bytes, the last of the file:

    offset  width field
    0       8     magic             "MGSEGEND"
    8       8     salt              that of the header
    16      4     version           1
    20      4     rows_offset       where the footer begins
    24      4     row_count
    28      4     ledger_count
    32      4     tombstone_count
    36      4     damage_count
    40      4     block_count       blocks of all kinds
    44      4     directory_crc     CRC32C of directory, tombstones and damages
    48      12    zero
    60      4     crc               CRC32C of bytes 0..60

An index that cannot be trusted never means "empty": the blocks are scanned. Where the trailer holds it
says where they end; where the header is lost, trailer or blocks have the salt (opening.py).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import google_crc32c

from magnetar.base.ids import LedgerId
from magnetar.bookie.index import ROW_BYTES, BlockRows, Damage, SegmentIndex

SEGMENT_VERSION: Final = 1
DATA_OFFSET: Final = 4096
"""Offset of the first block: the header's page is not rewritten together with data."""
SEGMENT_BYTES_MAX: Final = (1 << 32) - 1
"""Offsets are u32."""
PAGE_BYTES: Final = 4096
"""A file in use consists of whole pages of this size; a file that was ended hardly ever does."""

_HEADER: Final = struct.Struct("<8sIQ16sQ")
_CRC: Final = struct.Struct("<I")
_HEADER_MAGIC: Final = b"MGSEGMNT"
HEADER_READ_BYTES: Final = _HEADER.size + _CRC.size

_TRAILER: Final = struct.Struct("<8sQIIIIIIII12x")
_TRAILER_MAGIC: Final = b"MGSEGEND"
TRAILER_BYTES: Final = _TRAILER.size + _CRC.size
assert TRAILER_BYTES == 64

_DAMAGE: Final = struct.Struct("<IIqqq")

_crc = google_crc32c.value


CHECKPOINT_AT: Final = 2048
_CHECKPOINT: Final = struct.Struct("<QI")
CHECKPOINT_BYTES: Final = _CHECKPOINT.size + _CRC.size


def encode_checkpoint(salt: int, synced_to: int) -> bytes:
    """The checkpoint of a segment whose log is synced up to `synced_to`."""
    said = _CHECKPOINT.pack(salt, synced_to)
    return said + _CRC.pack(_crc(said))


def decode_checkpoint(buffer: bytes, salt: int) -> int:
    """Up to where the log was synced at least; 0 without a valid checkpoint."""
    if len(buffer) != CHECKPOINT_BYTES or buffer[_CHECKPOINT.size :] != _CRC.pack(
        _crc(buffer[: _CHECKPOINT.size])
    ):
        return 0
    its_salt, synced_to = _CHECKPOINT.unpack_from(buffer)
    return synced_to if its_salt == salt else 0


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    version: int
    segment_id: int
    instance: bytes
    """16 bytes."""
    salt: int


def encode_segment_header(segment_id: int, instance: bytes, salt: int) -> bytes:
    """The first DATA_OFFSET bytes of a segment."""
    assert len(instance) == 16
    head = _HEADER.pack(_HEADER_MAGIC, SEGMENT_VERSION, segment_id, instance, salt)
    return (head + _CRC.pack(_crc(head))).ljust(DATA_OFFSET, b"\0")


def decode_segment_header(buffer: bytes) -> SegmentHeader | None:
    """The header, or None when the bytes are not one (the creation of the file was interrupted, or
    damage)."""
    if len(buffer) < HEADER_READ_BYTES:
        return None
    magic, version, segment_id, instance, salt = _HEADER.unpack_from(buffer)
    (crc,) = _CRC.unpack_from(buffer, _HEADER.size)
    if magic != _HEADER_MAGIC or crc != _crc(buffer[: _HEADER.size]):
        return None
    return SegmentHeader(version, segment_id, instance, salt)


class Trailer(NamedTuple):
    """The end of a sealed segment."""

    salt: int
    version: int
    rows_offset: int
    row_count: int
    ledger_count: int
    tombstone_count: int
    damage_count: int
    block_count: int
    directory_crc: int

    @property
    def directory_offset(self) -> int:
        """Offset of the directory in the file."""
        return self.rows_offset + self.row_count * ROW_BYTES

    @property
    def directory_bytes(self) -> int:
        """Bytes of directory, tombstones and damages."""
        return self.ledger_count * 20 + self.tombstone_count * 8 + self.damage_count * _DAMAGE.size


def decode_trailer(buffer: bytes, salt: int | None, file_bytes: int) -> Trailer | None:
    """The trailer of a segment of `file_bytes` bytes from its last 64, or None when it is not sealed.

    `salt` None: the header is lost, and any salt will do.
    """
    if len(buffer) != TRAILER_BYTES:
        return None
    (crc,) = _CRC.unpack_from(buffer, _TRAILER.size)
    if crc != _crc(buffer[: _TRAILER.size]):
        return None
    magic, *fields = _TRAILER.unpack_from(buffer)
    trailer = Trailer._make(fields)
    if magic != _TRAILER_MAGIC or trailer.version != SEGMENT_VERSION:
        return None
    if salt is not None and trailer.salt != salt:
        return None
    if trailer.directory_offset + trailer.directory_bytes + TRAILER_BYTES != file_bytes:
        return None
    return trailer


def resembles_trailer(buffer: bytes, salt: int) -> bool:
    """Whether the last 64 bytes of a file may be a damaged trailer: its magic or its salt is there."""
    theirs = salt.to_bytes(8, "little")
    return buffer[:8] == _TRAILER_MAGIC or buffer[8:16] == theirs


def _column(kind: str, values: bytes | Sequence[int]) -> array[int]:
    column = array(kind, values) if isinstance(values, list) else array(kind)
    if isinstance(values, bytes):
        column.frombytes(values)
    if sys.byteorder != "little":
        column.byteswap()
    return column


def _ledger_column(data: bytes) -> Sequence[LedgerId]:
    return cast("Sequence[LedgerId]", _column("q", data))


def encode_footer(index: SegmentIndex, salt: int, rows_offset: int) -> bytes:
    """The footer of a segment whose blocks end at `rows_offset`."""
    ids = sorted(index.ledgers)
    rows = [bytes(index.ledgers[ledger_id].rows) for ledger_id in ids]
    counts = [len(part) // ROW_BYTES for part in rows]
    starts: list[int] = []
    total = 0
    for count in counts:
        starts.append(total)
        total += count
    directory = b"".join(
        (
            _column("q", ids).tobytes(),
            _column("I", starts).tobytes(),
            _column("I", counts).tobytes(),
            _column("I", [_crc(part) for part in rows]).tobytes(),
            _column("q", index.tombstones).tobytes(),
            *(_DAMAGE.pack(*damage) for damage in index.damages),
        )
    )
    trailer = _TRAILER.pack(
        _TRAILER_MAGIC,
        salt,
        SEGMENT_VERSION,
        rows_offset,
        total,
        len(ids),
        len(index.tombstones),
        len(index.damages),
        index.block_count,
        _crc(directory),
    )
    return b"".join((*rows, directory, trailer, _CRC.pack(_crc(trailer))))


class SealedIndex:
    """The directory of a sealed segment; the rows stay in the file until they are needed."""

    __slots__ = (
        "_counts",
        "_crcs",
        "_starts",
        "damages",
        "ledger_ids",
        "rows_offset",
        "segment_id",
        "tombstones",
    )

    def __init__(self, segment_id: int, trailer: Trailer, directory: bytes) -> None:
        number = trailer.ledger_count
        self.segment_id = segment_id
        self.rows_offset = trailer.rows_offset
        self.ledger_ids = _ledger_column(directory[: 8 * number])
        """Ledgers with blocks in this segment, ascending."""
        self._starts = _column("I", directory[8 * number : 12 * number])
        self._counts = _column("I", directory[12 * number : 16 * number])
        self._crcs = _column("I", directory[16 * number : 20 * number])
        at = 20 * number + 8 * trailer.tombstone_count
        self.tombstones = list(_ledger_column(directory[20 * number : at]))
        self.damages = [Damage._make(fields) for fields in _DAMAGE.iter_unpack(directory[at:])]

    @classmethod
    def decode(cls, segment_id: int, trailer: Trailer, directory: bytes) -> SealedIndex | None:
        """Decodes the directory; None when it does not match its checksum."""
        if len(directory) != trailer.directory_bytes or _crc(directory) != trailer.directory_crc:
            return None
        return cls(segment_id, trailer, directory)

    def position_of(self, ledger_id: LedgerId) -> int:
        """Position of the ledger in the directory; -1 when the segment has no block of it."""
        at = bisect_left(self.ledger_ids, ledger_id)
        return at if at < len(self.ledger_ids) and self.ledger_ids[at] == ledger_id else -1

    def count_rows(self, deleted: set[LedgerId]) -> tuple[int, int]:
        """Blocks of entries in the segment, and those of ledgers not in `deleted`."""
        alive = sum(
            count
            for ledger_id, count in zip(self.ledger_ids, self._counts, strict=True)
            if ledger_id not in deleted
        )
        return sum(self._counts), alive

    def rows_extent(self, position: int) -> tuple[int, int]:
        """Offset and length in the file of the rows of the ledger at `position`."""
        return self.rows_offset + self._starts[position] * ROW_BYTES, self._counts[position] * ROW_BYTES

    def decode_rows(self, position: int, rows: bytes) -> BlockRows | None:
        """Decodes the rows of the ledger at `position`; None when they do not match their checksum."""
        if _crc(rows) != self._crcs[position]:
            return None
        return BlockRows(self.segment_id, rows)
