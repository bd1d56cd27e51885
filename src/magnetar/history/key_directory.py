"""A key directory names the segments that have messages with a key. Pure.

    "MGKD" | version u32 | bits u32 | size of the list u32 | size of the section u32 | CRC32C u32
    the list, JSON: the segments as [ledger, attempt, first entry]
    a section as `key_index` writes it, whose records name the segment in place of the row group

The CRC32C covers the numbers before it and the list. The head of version 1 ends with the size of the list,
and its section has version 1 too.

Without a directory, a look-up by key would search the index of every segment of a topic, with two ranged
reads each. With it, one read of the beginning gives the list, and at most two more give the places of the
key; one read is enough when the topic has no keys. The list names the attempt of each segment, so that it
does not match a ledger that was copied again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from magnetar.base.ids import LedgerId
from magnetar.history import key_index
from magnetar.tiered.parquet.parquet_history import ByteSource, DamagedSegmentError, KeyPlace

_HEAD: Final = struct.Struct("<4sIII")
_MAGIC: Final = b"MGKD"
_SUMMED: Final = struct.Struct("<II")
"""Fields that follow the head since version 2."""
_VERSION: Final = 2

BEGINNING_BYTES: Final = 64 << 10
"""Bytes of the first read, which holds the list of a thousand segments."""
RECORDS_MAX: Final = 4 << 20
"""Most records of one directory, 16 bytes each. A merge takes the helper process about four times as many
bytes."""

Hashes = npt.NDArray[np.uint64]


class TooManyKeysError(DamagedSegmentError):
    """The segments together have more keys than a directory takes."""


def encode(parts: Sequence[tuple[Sequence[KeyPlace], Hashes, npt.NDArray[np.int64]]]) -> bytes:
    """The directory of several parts. A part is the list of its segments, the hashes, and for each hash the
    number of its segment. Raises TooManyKeysError."""
    segments: list[KeyPlace] = []
    hashes, owners = [], []
    for places, found, numbers in parts:
        hashes.append(found)
        owners.append(numbers + len(segments))
        segments += places
    records = key_index.records_of(np.concatenate(hashes), np.concatenate(owners))
    if len(records) > RECORDS_MAX:
        raise TooManyKeysError(f"{len(records)} keys are more than a directory takes")
    section, bits = key_index.section(records) if len(records) else (b"", 0)
    listed = json.dumps([list(place) for place in segments], separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, _VERSION, bits, len(listed))
    return b"".join((head, _SUMMED.pack(len(section), _sum(head, len(section), listed)), listed, section))


def _sum(head: bytes, section_bytes: int, listed: bytes) -> int:
    return int(google_crc32c.value(b"".join((head, struct.pack("<I", section_bytes), listed))))


class FoundKeys(NamedTuple):
    """The result of a search in a directory."""

    segments: list[KeyPlace]
    """All segments that the directory covers."""
    holders: list[KeyPlace]
    """The segments that may have the key."""


class KeyDirectory:
    """Reads a directory. Not thread-safe. Every call raises DamagedSegmentError and the errors of its
    source."""

    def __init__(self, source: ByteSource) -> None:
        """Reads nothing yet."""
        self._source = source

    @cached_property
    def _head(self) -> tuple[int, int, int]:
        """Version, bits, and offset of the list."""
        data = self._first
        magic, version, bits, _ = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0)
        list_at = _HEAD.size + (_SUMMED.size if version > 1 else 0)
        if magic != _MAGIC or not 1 <= version <= _VERSION or len(data) < list_at:
            raise DamagedSegmentError(f"{self._source.name} is not a directory of keys")
        return version, bits, list_at

    @cached_property
    def _first(self) -> bytes:
        return self._source.read_at(0, min(self._source.size, BEGINNING_BYTES))

    @cached_property
    def _beginning(self) -> bytes:
        """All bytes before the section, and those read with them."""
        source, data = self._source, self._first
        version, _, list_at = self._head
        end = list_at + int(_HEAD.unpack_from(data)[3])
        if end > source.size:
            raise DamagedSegmentError(f"{source.name} is not a directory of keys")
        if end > len(data):
            data += source.read_at(len(data), end - len(data))
        if version > 1:
            section_bytes, said = _SUMMED.unpack_from(data, _HEAD.size)
            found = _sum(data[: _HEAD.size], section_bytes, data[list_at:end])
            if found != said or end + section_bytes != source.size:
                raise DamagedSegmentError(f"{source.name} fails its checksum, or is cut off")
        return data

    @cached_property
    def _section_at(self) -> int:
        return self._head[2] + int(_HEAD.unpack_from(self._beginning)[3])

    @cached_property
    def segments(self) -> list[KeyPlace]:
        """The segments that the directory covers."""
        try:
            return [
                KeyPlace(LedgerId(int(ledger)), str(attempt), int(first))
                for ledger, attempt, first in json.loads(self._beginning[self._head[2] : self._section_at])
            ]
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"{self._source.name} has a list that makes no sense") from error

    def find(self, key: bytes) -> FoundKeys:
        """Searches the directory for a key."""
        version, bits, _ = self._head
        if self._source.size == self._section_at:
            return FoundKeys(self.segments, [])
        places = key_index.find(key, self._read_at, bits, version)
        if any(place.row_group >= len(self.segments) for place in places):
            raise DamagedSegmentError(f"{self._source.name} names segments that it does not list")
        return FoundKeys(self.segments, [self.segments[place.row_group] for place in places])

    def _read_at(self, offset: int, length: int) -> bytes:
        at = self._section_at + offset
        if at + length > self._source.size:
            raise DamagedSegmentError(f"{self._source.name} is cut off")
        if at + length <= len(self._beginning):
            return self._beginning[at : at + length]
        return self._source.read_at(at, length)

    def hashes(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """All hashes, and for each the number of its segment."""
        size = self._source.size - self._section_at
        found = key_index.read_records(self._read_at(0, size) if size else b"")
        return found["hash"].astype(np.uint64), found["group"].astype(np.int64)
