"""The key index of a segment names the row groups that have messages with a key. Pure.

    "MGKI" | version u32 | bits u32 | records u32
    2^bits + 1 times, by hash prefix: number of its first record u32 | CRC32C u32, 0 in the last one
    records, by hash and row group: hash u64 | row group u32 | row u32

The CRC32C covers prefix, start and end, u32 each, and the records between them. Without it, one flipped bit
could hide a key, and an older message would be taken for its last one. Version 1 has no checksum.

The hash is the first half of MurmurHash3 x64 128 of the key, seed 0; its first `bits` bits are the prefix.
The row is that of the last message with the key in the row group. All numbers are little-endian; `bits` is
also in the file's metadata. A search makes two ranged reads: 16 bytes, then the records of one prefix. Keys
of equal hash share records, so the caller must compare keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import google_crc32c
import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from magnetar.arrow.fields import Ints
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError

_HEAD: Final = struct.Struct("<4sIII")
_MAGIC: Final = b"MGKI"
VERSION: Final = 2
_ENTRY_BYTES: Final = {1: 4, 2: 8}
"""Bytes of a prefix's entry, by version."""
_RECORD: Final = np.dtype([("hash", "<u8"), ("group", "<u4"), ("row", "<u4")])
Records = npt.NDArray[np.void]
_RECORDS_PER_PREFIX: Final = 64
"""Average number of records of a prefix: about a kilobyte, which costs no more to read than a byte."""
_DAMAGED: Final = "the key index fails a checksum"


def hash_of(key: bytes) -> int:
    """The key's hash, 64 bits."""
    return int(mmh3.hash64(key, signed=False)[0])


class Place(NamedTuple):
    """A place of a hash."""

    row_group: int
    row: int
    """Row of the last message with it in the row group."""


class KeyIndexBuilder:
    """Collects keys row group by row group."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.void]] = []
        self._groups = 0
        self.key_min: bytes | None = None
        self.key_max: bytes | None = None

    def add(self, keys: pa.Array) -> None:
        """The keys of the next row group, null where a message has none."""
        group, self._groups = self._groups, self._groups + 1
        if keys.null_count == len(keys):
            return
        encoded = keys.dictionary_encode()
        rows = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        codes = encoded.indices.drop_null().to_numpy()
        distinct: list[bytes] = encoded.dictionary.to_pylist()
        last: Ints = np.zeros(len(distinct), np.int64)
        last[codes] = rows
        part = np.empty(len(distinct), _RECORD)
        part["hash"] = [mmh3.hash64(key, signed=False)[0] for key in distinct]
        part["group"] = group
        part["row"] = last
        self._parts.append(part)
        smallest, largest = min(distinct), max(distinct)
        self.key_min = smallest if self.key_min is None else min(self.key_min, smallest)
        self.key_max = largest if self.key_max is None else max(self.key_max, largest)

    def finish(self) -> tuple[bytes, int]:
        """The section and the number of distinct keys (equal hashes count once); b"" without keys."""
        if not self._parts:
            return b"", 0
        records = np.concatenate(self._parts)
        records = records[np.argsort(records["hash"], kind="stable")]
        hashes = records["hash"]
        distinct = 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))
        return section(records)[0], distinct


def section(records: Records) -> tuple[bytes, int]:
    """The section with these records, sorted by hash, and its `bits`."""
    hashes = records["hash"]
    bits = max(0, (len(records) // _RECORDS_PER_PREFIX).bit_length())
    prefixes = np.arange((1 << bits) + 1, dtype=np.float64) * 2.0 ** (64 - bits)
    # The last prefix ends where the records end; as a number of 64 bits it would not fit.
    starts = np.searchsorted(hashes, prefixes[:-1].astype(np.uint64))
    ends = np.append(starts, len(records)).tolist()
    data = records.tobytes()
    entries = np.zeros((len(ends), 2), "<u4")
    entries[:, 0] = ends
    for prefix, (start, stop) in enumerate(pairwise(ends)):
        entries[prefix, 1] = _sum(
            prefix, start, stop, data[_RECORD.itemsize * start : _RECORD.itemsize * stop]
        )
    head = _HEAD.pack(_MAGIC, VERSION, bits, len(records))
    return b"".join((head, entries.tobytes(), data)), bits


def _sum(prefix: int, start: int, stop: int, records: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(struct.pack("<III", prefix, start, stop)), records))


def records_of(hashes: npt.NDArray[np.uint64], groups: npt.NDArray[np.int64]) -> Records:
    """Sorted records of these hashes, one per hash and row group, with row 0."""
    records = np.zeros(len(hashes), _RECORD)
    records["hash"], records["group"] = hashes, groups
    records = records[np.lexsort((groups, hashes))]
    repeated = (records["hash"][1:] == records["hash"][:-1]) & (records["group"][1:] == records["group"][:-1])
    return records[np.append(True, ~repeated)] if len(records) else records


def read_records(data: bytes) -> Records:
    """All records of a section; empty for an empty section. Raises DamagedSegmentError."""
    if not data:
        return np.zeros(0, _RECORD)
    magic, version, bits, count = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0)
    size = _ENTRY_BYTES.get(version, 0)
    start = _HEAD.size + size * ((1 << min(bits, 32)) + 1)
    if magic != _MAGIC or not size or len(data) != start + _RECORD.itemsize * count:
        raise DamagedSegmentError("the key index makes no sense")
    if version > 1:
        entries = np.frombuffer(data[_HEAD.size : start], "<u4").reshape(-1, 2).tolist()
        if entries[-1] != [count, 0]:
            raise DamagedSegmentError(_DAMAGED)
        for prefix, ((first, said), (stop, _)) in enumerate(pairwise(entries)):
            here = data[start + _RECORD.itemsize * first : start + _RECORD.itemsize * stop]
            if _sum(prefix, first, stop, here) != said:
                raise DamagedSegmentError(_DAMAGED)
    return np.frombuffer(data, _RECORD, offset=start)


def find(key: bytes, read_at: Callable[[int, int], bytes], bits: int, version: int) -> list[Place]:
    """The places that may have the key, last row group first. `read_at` reads in the section.

    Raises DamagedSegmentError when a checksum fails.
    """
    wanted = hash_of(key)
    prefix = wanted >> (64 - bits) if bits else 0
    size = _ENTRY_BYTES[version]
    entries = np.frombuffer(read_at(_HEAD.size + size * prefix, 2 * size), "<u4").tolist()
    start, stop = entries[0], entries[len(entries) // 2]
    if stop < start:
        raise DamagedSegmentError("the key index has prefixes out of order")
    records_at = _HEAD.size + size * ((1 << bits) + 1)
    length = _RECORD.itemsize * (stop - start)
    data = read_at(records_at + _RECORD.itemsize * start, length) if length else b""
    if version > 1 and _sum(prefix, start, stop, data) != entries[1]:
        raise DamagedSegmentError(_DAMAGED)
    records = np.frombuffer(data, _RECORD)
    found = records[records["hash"] == np.uint64(wanted)]
    return [Place(int(record["group"]), int(record["row"])) for record in found[::-1]]
