"""Which segments a store has, on disk: so that a file that is lost is told from one that was deleted.

The file ROSTER is written twice, one copy behind the other, each in half of the file:

    offset  width field
    0       8     magic         "MGROSTER"
    8       4     version       of the format: 1
    12      4     range_count
    16      8     sequence      grows with each change; the copy with the higher one counts
    24      16    instance      the store's instance id
    40      16*n  ranges        first and last id, u64 each, ascending
    ..      4     crc           CRC32C of everything before

A segment is listed when its file has its name for good and before anything is written to it; it is taken off
the list before its file goes. So at any time, and after any crash, every listed segment has its file, and
every segment with entries is listed or was about to be deleted. A listed segment without a file was lost.

Changes are written in place: they need no space, as deletions on a full disk must go on. Where there is none
all the same (the file is made, or grows), it is removed until there is space: a store without one makes it of
the files that are there. Blocking; any thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

import google_crc32c

from magnetar.base.errors import DiskFullError, StartupError
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.folder import StoreFolder

_log = logging.getLogger("magnetar.bookie")

ROSTER_FILE: Final = "ROSTER"
_COPY_BYTES_MIN: Final = 4096
"""Bytes of a copy: enough for 250 ranges; most stores have fewer than ten."""
_MAGIC: Final = b"MGROSTER"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sIIQ16s")
_RANGE: Final = struct.Struct("<QQ")
_CRC: Final = struct.Struct("<I")


class Listed(NamedTuple):
    """The content of one copy."""

    sequence: int
    ids: frozenset[int]


def encode_roster(listed: Listed, instance: bytes) -> bytes:
    """Encodes one copy."""
    ranges: list[tuple[int, int]] = []
    for segment_id in sorted(listed.ids):
        if ranges and ranges[-1][1] == segment_id - 1:
            ranges[-1] = ranges[-1][0], segment_id
        else:
            ranges.append((segment_id, segment_id))
    said = _HEAD.pack(_MAGIC, _VERSION, len(ranges), listed.sequence, instance)
    said += b"".join(_RANGE.pack(*each) for each in ranges)
    return said + _CRC.pack(google_crc32c.value(said))


def decode_roster(copy: bytes, instance: bytes) -> Listed | None:
    """Decodes a copy; None when it is damaged, of another store, or of an unknown format."""
    if len(copy) < _HEAD.size:
        return None
    magic, version, count, sequence, its_instance = _HEAD.unpack_from(copy)
    end = _HEAD.size + count * _RANGE.size
    if (magic, version, its_instance) != (_MAGIC, _VERSION, instance) or len(copy) < end + _CRC.size:
        return None
    if _CRC.unpack_from(copy, end)[0] != google_crc32c.value(copy[:end]):
        return None
    ids = (range(first, last + 1) for first, last in _RANGE.iter_unpack(copy[_HEAD.size : end]))
    return Listed(sequence, frozenset(each for run in ids for each in run))


class Roster:
    """The list of one store."""

    def __init__(self, folder: StoreFolder, disk: Disk) -> None:
        self.file: Final = folder.root / ROSTER_FILE
        self._instance = folder.instance
        self._disk = disk
        self._listed = Listed(0, frozenset())
        self._lock = threading.Lock()

    @property
    def ids(self) -> frozenset[int]:
        """The segments that are listed."""
        return self._listed.ids

    def read(self) -> frozenset[int] | None:
        """The listed segments; None without a file. Raises StartupError when no copy is good, OSError."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return None
        half = len(data) // 2
        copies = [decode_roster(part, self._instance) for part in (data[:half], data[half:])]
        good = [copy for copy in copies if copy is not None]
        if not good:
            raise StartupError(
                f"{self.file} is damaged, or of a newer version: whether segments are missing cannot be told."
                " Restore this file; or run `magnetar doctor storage repair --apply`, which makes it anew of"
                " the segments that are there"
            )
        self._listed = max(good)
        return self._listed.ids

    def replace(self, ids: Iterable[int]) -> None:
        """Lists exactly these segments. Raises OSError."""
        with self._lock:
            self._write(frozenset(ids))

    def add(self, segment_id: int) -> None:
        """Lists a segment, after its file has its final name and before it is written. Raises OSError."""
        with self._lock:
            self._write(self._listed.ids | {segment_id})

    def remove(self, segment_id: int) -> None:
        """Removes a segment from the list, before its file is deleted. Raises OSError."""
        with self._lock:
            self._write(self._listed.ids - {segment_id})

    def _write(self, ids: frozenset[int]) -> None:
        self._listed = Listed(self._listed.sequence + 1, ids)
        copy = encode_roster(self._listed, self._instance)
        try:
            if not self._write_over(copy):
                self._write_new(copy)
        except OSError as error:
            if not isinstance(failure := storage_error(error, self.file.parent, ""), DiskFullError):
                raise
            # A wrong list is worse than none.
            self.file.unlink(missing_ok=True)
            self._disk.sync_folder(self.file.parent)
            _log.warning("segments are not listed until there is free disk space: %s", failure)

    def _write_over(self, copy: bytes) -> bool:
        """Writes in place; False when there is no file, or it is too small. Raises OSError."""
        try:
            fd = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            half = os.fstat(fd).st_size // 2
            if len(copy) > half:
                return False
            # One copy is intact at any time: the second is written after the first is durable, and the first
            # again after the second is.
            for offset in (0, half):
                self._disk.write(fd, [copy], offset)
                self._disk.sync(fd)
        finally:
            os.close(fd)
        return True

    def _write_new(self, copy: bytes) -> None:
        half = _COPY_BYTES_MIN
        while half < len(copy):
            half *= 2
        part = self.file.with_name(f"{ROSTER_FILE}.new")
        try:
            fd = self._disk.create(part, 2 * half)
            try:
                self._disk.write(fd, [copy.ljust(half, b"\0"), copy.ljust(half, b"\0")], 0)
                self._disk.sync(fd)
            finally:
                os.close(fd)
            part.replace(self.file)
        except OSError:
            # The original error is raised; the next attempt overwrites the leftover.
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        self._disk.sync_folder(self.file.parent)
