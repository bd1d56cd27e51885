"""A key directory: which of many segments have messages with a key. Pure.

    "MGKD" | version u32 | bits u32 | size of the list u32
    the list, JSON: the segments as [ledger, attempt, first entry]
    a section as `key_index` writes it, whose records name the segment in place of the row group

A look-up by key would else ask every segment of a topic for its own index, two ranged reads each. One read
of the directory's beginning gives the list, at most two more where the key is; directories of a topic without
keys are one read. Segments are named with their attempt: a ledger that was copied anew is not of the list.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from magnetar.history import key_index
from magnetar.tiered.parquet.api import ByteSource, DamagedSegmentError, KeyPlace

_HEAD: Final = struct.Struct("<4sIII")
_MAGIC: Final = b"MGKD"
_VERSION: Final = 1

BEGINNING_BYTES: Final = 64 << 10
"""Read at first: holds the list of a thousand segments."""
RECORDS_MAX: Final = 4 << 20
"""Of one directory, 16 bytes each: merging takes the helper process about four times that."""

Hashes = npt.NDArray[np.uint64]


class TooManyKeysError(DamagedSegmentError):
    """The segments together have more keys than a directory takes."""


def encode(parts: Sequence[tuple[Sequence[KeyPlace], Hashes, npt.NDArray[np.int64]]]) -> bytes:
    """The directory of several segments or directories: of each the segments it tells of, the hashes, and
    for each hash the number of its segment. Raises TooManyKeysError."""
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
    return b"".join((_HEAD.pack(_MAGIC, _VERSION, bits, len(listed)), listed, section))


class Found(NamedTuple):
    """What a directory says of a key."""

    segments: list[KeyPlace]
    """All it tells of."""
    holders: list[KeyPlace]
    """Those that may have the key."""


class KeyDirectory:
    """Reads one. Not thread-safe. Every call raises DamagedSegmentError, and what its source raises."""

    def __init__(self, source: ByteSource) -> None:
        """Reads nothing yet."""
        self._source = source

    @cached_property
    def _beginning(self) -> bytes:
        source = self._source
        data = source.read_at(0, min(source.size, BEGINNING_BYTES))
        magic, version, _, size = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0)
        if magic != _MAGIC or version > _VERSION or _HEAD.size + size > source.size:
            raise DamagedSegmentError(f"{source.name} is no directory of keys")
        if _HEAD.size + size > len(data):
            data += source.read_at(len(data), _HEAD.size + size - len(data))
        return data

    @cached_property
    def _section_at(self) -> int:
        size: int = _HEAD.unpack_from(self._beginning)[3]
        return _HEAD.size + size

    @cached_property
    def segments(self) -> list[KeyPlace]:
        """The segments that it tells of."""
        try:
            return [
                KeyPlace(int(ledger), str(attempt), int(first))
                for ledger, attempt, first in json.loads(self._beginning[_HEAD.size : self._section_at])
            ]
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"{self._source.name} has a list that makes no sense") from error

    def find(self, key: bytes) -> Found:
        """Which of its segments may have the key."""
        bits: int = _HEAD.unpack_from(self._beginning)[2]
        places = key_index.find(key, self._read_at, bits) if self._source.size > self._section_at else []
        return Found(self.segments, [self.segments[place.row_group] for place in places])

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
