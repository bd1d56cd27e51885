"""Bytes of acknowledged entries.

    acked    := { ledger varint · chunk groups varint · group… }     ledgers in any order
    group    := gap varint · kind u8 · body                          groups ascending
    gap      chunks between the end of the group before (at first: chunk 0) and this one
    kind 0   full:   chunks varint            that many chunks of 1024 entries, all acknowledged
    kind 1   bitmap: 128 bytes, little-endian one chunk, lowest entry in the lowest bit
    kind 2   list:   n varint · n × u16 LE    one chunk with few entries

    varint   as protobuf's, unsigned

Dense sets cost a bit per entry, long runs a few bytes, single acknowledgements two bytes and a header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.managedlog.cursors.entry_set import CHUNK_BITS, FULL, EntrySet

_FULL: Final = 0
_BITMAP: Final = 1
_LIST: Final = 2
_BITMAP_BYTES: Final = CHUNK_BITS // 8
_LIST_MAX: Final = 24
"""Entries of a list at most: beyond that, picking out the bits costs more than the bytes are worth."""
_CHUNK_MAX: Final = 1 << 53
"""Bound of chunk numbers, so that entry ids fit 63 bits."""
FULL_MAX: Final = 1 << 22
"""Full chunks of one value: four billion entries. A few damaged bytes may say more, which would take minutes
and all memory."""


class MalformedAckedError(StorageError):
    """The bytes are not the output of `encode`."""


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def encode(acked: Mapping[LedgerId, EntrySet]) -> bytes:
    """The bytes of entries by ledger."""
    out = bytearray()
    for ledger_id, entries in acked.items():
        groups = bytearray()
        group_count = 0
        position = 0
        chunks = entries.chunks
        numbers = sorted(chunks)
        index = 0
        while index < len(numbers):
            number = numbers[index]
            bits = chunks[number]
            _put_varint(groups, number - position)
            index += 1
            if bits == FULL:
                stop = number + 1
                while index < len(numbers) and numbers[index] == stop and chunks[stop] == FULL:
                    stop += 1
                    index += 1
                groups.append(_FULL)
                _put_varint(groups, stop - number)
                position = stop
            else:
                _put_partial(groups, bits)
                position = number + 1
            group_count += 1
        _put_varint(out, ledger_id)
        _put_varint(out, group_count)
        out += groups
    return bytes(out)


def _put_partial(out: bytearray, bits: int) -> None:
    """A chunk that is not full."""
    count = bits.bit_count()
    if count > _LIST_MAX:
        out.append(_BITMAP)
        out += bits.to_bytes(_BITMAP_BYTES, "little")
        return
    out.append(_LIST)
    _put_varint(out, count)
    while bits:
        low = bits & -bits
        out += struct.pack("<H", low.bit_length() - 1)
        bits ^= low


class _Reader:
    """Takes values from the front of the bytes."""

    __slots__ = ("data", "full_left", "offset")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0
        self.full_left = FULL_MAX
        """Full chunks that may still come."""

    def varint(self) -> int:
        value = shift = 0
        while True:
            if self.offset >= len(self.data) or shift > 63:
                raise MalformedAckedError("a varint does not end")
            byte = self.data[self.offset]
            self.offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, count: int) -> bytes:
        if self.offset + count > len(self.data):
            raise MalformedAckedError("the bytes end too early")
        self.offset += count
        return self.data[self.offset - count : self.offset]


def decode(data: bytes) -> dict[LedgerId, EntrySet]:
    """The inverse of `encode`. Raises MalformedAckedError."""
    reader = _Reader(data)
    acked: dict[LedgerId, EntrySet] = {}
    while reader.offset < len(data):
        entries = acked.setdefault(LedgerId(reader.varint()), EntrySet())
        position = 0
        for _ in range(reader.varint()):
            number = position + reader.varint()
            if number >= _CHUNK_MAX:
                raise MalformedAckedError(f"chunk {number} is out of range")
            position = number + _take_group(reader, entries, number)
    return acked


def _take_group(reader: _Reader, entries: EntrySet, number: int) -> int:
    """Reads one group that begins at chunk `number`; returns how many chunks it covers."""
    kind = reader.take(1)[0]
    if kind == _FULL:
        count = reader.varint()
        if not 0 < count <= reader.full_left:
            raise MalformedAckedError(f"a group covers {count} chunks")
        reader.full_left -= count
        entries.add_full(number, count)
        return count
    if kind == _BITMAP:
        entries.add_chunk(number, int.from_bytes(reader.take(_BITMAP_BYTES), "little"))
        return 1
    if kind == _LIST:
        count = reader.varint()
        bits = 0
        for offset in struct.unpack(f"<{count}H", reader.take(2 * count)):
            bits |= 1 << offset
        if bits > FULL:
            raise MalformedAckedError("an entry lies outside its chunk")
        entries.add_chunk(number, bits)
        return 1
    raise MalformedAckedError(f"unknown kind {kind}")
