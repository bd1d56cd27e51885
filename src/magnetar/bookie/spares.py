"""Spare files: segments to be, whose place on the device was written before.

The first write into a place of a file changes what the file system keeps about it, so the sync behind
it has to commit the journal; a sync of bytes written over old ones does not, and takes half as long
(docs/decisions/0006-files-written-before.md). Segments in which nothing lives any more become spares,
and so do files that were filled with zeros for it (prewriter.py). What lies in a spare has no meaning.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.segment import PAGE_BYTES

KEEP_SHARE: Final = 16
"""A file is kept when it has at least this part of a segment's bytes: `segment_bytes / KEEP_SHARE`."""


class SparePool:
    """The spare files of one store. What it says of files is blocking, and may be called in any thread."""

    def __init__(self, folder: StoreFolder, disk: Disk, *, count_max: int, segment_bytes: int) -> None:
        """Keeps at most `count_max` files; segments are made with `segment_bytes` bytes."""
        self._folder = folder
        self._disk = disk
        self._count_max = count_max
        self._segment_bytes = segment_bytes
        self._files: list[Path] = []
        self._expected = 0

    def __len__(self) -> int:
        return len(self._files)

    def load(self) -> None:
        """Finds the spares that are there; deletes those that are too many. Raises OSError."""
        found = sorted(self._folder.spare_paths(), key=lambda path: path.stat().st_size)
        keep = found[-self._count_max :] if self._count_max else []
        for path in found[: len(found) - len(keep)]:
            path.unlink()
        self._files = keep

    def reserve(self, size: int) -> bool:
        """Whether a file of `size` bytes is welcome; then `keep` or `forgo` must follow. Event loop only."""
        if len(self._files) + self._expected >= self._count_max:
            return False
        if size < self._segment_bytes // KEEP_SHARE or not self.has_room(self._segment_bytes):
            return False
        self._expected += 1
        return True

    def forgo(self) -> None:
        """The file that was reserved for does not come, or has come. Event loop only."""
        self._expected -= 1

    def has_room(self, size: int) -> bool:
        """Whether the disk has `size` bytes that nobody uses: what is short is not kept back."""
        return self._disk.free_bytes(self._folder.segments) >= size

    def keep(self, path: Path) -> None:
        """Takes a file, which nobody may have open. Raises OSError.

        It counts only when its old name is gone for good: a power cut must not bring a segment back
        whose bytes were written over.
        """
        spare = self._folder.spare_path(path)
        path.rename(spare)
        self._disk.sync_folder(self._folder.segments)
        self._files.append(spare)

    def take(self) -> Path | None:
        """A file to be written over; None when there is none."""
        with contextlib.suppress(IndexError):  # an empty list of spares is no error
            return self._files.pop()
        return None

    def clear(self) -> bool:
        """Deletes all, to free space; whether there was any."""
        any_there = False
        while (path := self.take()) is not None:
            any_there = True
            # The next one may go; a spare that stays is found at the next start.
            with contextlib.suppress(OSError):
                path.unlink()
        return any_there


def resize(fd: int, size: int, disk: Disk) -> int:
    """Brings a spare to `size` bytes, where the disk has space for that; returns what it has.

    Bytes that come to it were never written; they lie behind those that were. `size` is of whole pages, and
    so is what it has: the file of a dead segment ended behind a footer. Raises OSError.
    """
    has = os.fstat(fd).st_size
    if has > size:
        os.ftruncate(fd, size)
        return size
    try:
        disk.allocate(fd, size)
    except OSError:
        # No room: it serves as it is. What was found meanwhile is given back.
        has -= has % PAGE_BYTES
        os.ftruncate(fd, has)
        return has
    return size
