"""Spare files: future segments whose bytes on the device were written before.

The first write to a place of a file changes the file system's records of it, so the next sync must commit the
journal. A sync of overwritten bytes need not, and takes half as long
(docs/decisions/0006-files-written-before.md). Dead segments become spares, and so do files that were filled
with zeros for it (prewriter.py). The content of a spare has no meaning.
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
"""A file is kept when it has at least this fraction of a segment's bytes: `segment_bytes / KEEP_SHARE`."""


class SparePool:
    """The spare files of one store. Methods that touch files block, and may be called in any thread."""

    def __init__(self, folder: StoreFolder, disk: Disk, *, count_max: int, segment_bytes: int) -> None:
        """Keeps at most `count_max` files; segments have `segment_bytes` bytes."""
        self._folder = folder
        self._disk = disk
        self._count_max = count_max
        self._segment_bytes = segment_bytes
        self._files: list[Path] = []
        self._expected = 0

    def __len__(self) -> int:
        return len(self._files)

    def load(self) -> None:
        """Finds the existing spares; deletes surplus ones. Raises OSError."""
        found = sorted(self._folder.spare_paths(), key=lambda path: path.stat().st_size)
        keep = found[-self._count_max :] if self._count_max else []
        for path in found[: len(found) - len(keep)]:
            path.unlink()
        self._files = keep

    def reserve(self, size: int) -> bool:
        """Whether a file of `size` bytes is wanted; then `keep` or `forgo` must follow. Event loop only."""
        if len(self._files) + self._expected >= self._count_max:
            return False
        if size < self._segment_bytes // KEEP_SHARE or not self.has_room(self._segment_bytes):
            return False
        self._expected += 1
        return True

    def forgo(self) -> None:
        """Ends a reservation. Event loop only."""
        self._expected -= 1

    def has_room(self, size: int) -> bool:
        """Whether the disk has `size` free bytes; on a short disk no spare is kept."""
        return self._disk.free_bytes(self._folder.segments) >= size

    def keep(self, path: Path) -> None:
        """Takes a file, which must not be open anywhere. Raises OSError.

        It becomes a spare only after its old name is durably gone: a power cut must not bring back a segment
        whose bytes were overwritten.
        """
        spare = self._folder.spare_path(path)
        path.rename(spare)
        self._disk.sync_folder(self._folder.segments)
        self._files.append(spare)

    def take(self) -> Path | None:
        """A file to overwrite; None when there is none."""
        with contextlib.suppress(IndexError):  # an empty list of spares is not an error
            return self._files.pop()
        return None

    def clear(self) -> bool:
        """Deletes all spares to free space; returns whether there were any."""
        any_there = False
        while (path := self.take()) is not None:
            any_there = True
            # The others may still be deleted; the next start finds a spare that stays.
            with contextlib.suppress(OSError):
                path.unlink()
        return any_there


def resize(fd: int, size: int, disk: Disk) -> int:
    """Resizes a spare to `size` bytes, as far as the disk has space; returns the actual size.

    The added bytes were never written; they come after those that were. `size` and the actual size are whole
    pages: the file of a dead segment ended with a footer. Raises OSError.
    """
    has = os.fstat(fd).st_size
    if has > size:
        os.ftruncate(fd, size)
        return size
    try:
        disk.allocate(fd, size)
    except OSError:
        # The disk is full: the spare is used as it is. The space found so far is freed.
        has -= has % PAGE_BYTES
        os.ftruncate(fd, has)
        return has
    return size
