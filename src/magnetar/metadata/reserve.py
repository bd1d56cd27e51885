"""Disk space that is kept for the writes that free space.

On a full disk everything that frees space begins with a write of metadata: a shorter list of ledgers, a
deleted topic, a cursor that moves on. A file of some megabytes is set aside while there is space. When a
write finds none, the file is made shorter by a piece, and the write is tried again:

    whole ──the disk is full──▶ a piece shorter … ──▶ empty: the write is refused
      ▲                                   │
      └──── a write while there is space ──┘

Writes that create something new get the first half only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 1 << 20
"""Bytes released at once: some hundred small writes, and too few for a segment of another store."""
_MARGIN: Final = 4
"""The file grows only while the disk has this many times its size free."""


class Reserve:
    """The reserve file. Calls block for less than a millisecond: no data is written to it."""

    def __init__(self, file: Path, size_bytes: int) -> None:
        """`size_bytes`: size of the reserve; 0: no reserve. `refill` makes the file."""
        self._file = file
        self._size = size_bytes
        self._has = file.stat().st_size if size_bytes and file.exists() else 0

    @property
    def is_whole(self) -> bool:
        """Whether no piece of the reserve is given up."""
        return self._has >= self._size

    def give_up(self, *, for_new: bool) -> bool:
        """Frees a piece; False when none is left for such a write. Raises OSError.

        `for_new`: the write creates something new, and so may use the first half only.
        """
        if self._has <= (self._size // 2 if for_new else 0):
            return False
        self._has = max(0, self._has - PIECE_BYTES)
        os.truncate(self._file, self._has)
        return True

    def refill(self) -> bool:
        """Makes the file whole if the disk has enough space; returns whether it is whole. Raises OSError."""
        if self.is_whole:
            return True
        found = os.statvfs(self._file.parent)
        if found.f_bavail * found.f_frsize < _MARGIN * self._size:
            return False
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size)
        finally:
            os.close(fd)
        self._has = self._size
        return True
