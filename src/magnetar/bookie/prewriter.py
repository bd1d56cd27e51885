"""Fills files with zeros in the background, so that segments made of them are written over existing bytes.

Never the segment in use: a zero cannot overwrite an entry, and the file system's notes about new bytes belong
to another file than the one whose syncs are waited for. The zeros bypass the page cache in pieces, at a
bounded rate, and none are written while entries come fast: then the device is busy, and a dead segment will
soon be there instead.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.bookie.files import ZEROS_BYTES_MAX, Disk
from magnetar.runtime.tasks import happens_within
from magnetar.runtime.threads import in_thread

_LOOK_S: Final = 0.1
"""Seconds between two measurements of the entries' rate."""
_LIGHT_SHARE: Final = 0.5
"""Zeros are written while entries come at less than this share of the zeros' rate: so the file is full before
it is needed."""


class Prewriter:
    """Fills one file at a time."""

    def __init__(self, disk: Disk, *, bytes_per_s: int, committed: Callable[[], int]) -> None:
        """`committed` returns the bytes of entries written so far."""
        self.written_bytes = 0
        """Bytes of zeros written since the store was opened."""
        self._disk = disk
        self._bytes_per_s = bytes_per_s
        self._committed = committed
        self._stop = asyncio.Event()
        self._looked_at_s = 0.0
        self._looked_at_bytes = 0
        self._light = False

    def stop(self) -> None:
        """Ends the filling under way at its next step, and every later one."""
        self._stop.set()

    async def fill(self, path: Path, size: int) -> bool:
        """Creates a file of `size` bytes, all written; False when stopped, and no file is left.

        Raises OSError: no file is left either.
        """
        fd = direct = -1
        done = False
        try:
            fd = await in_thread(self._disk.create, path, size)
            direct = self._disk.open_direct(path)
            done = await self._fill(direct, size)
            if done:
                await in_thread(self._disk.sync, fd)
        except asyncio.CancelledError:
            # A thread may still be writing: its descriptor must not be reused for another file.
            fd = direct = -1
            raise
        finally:
            for opened in (fd, direct):
                if opened >= 0:
                    os.close(opened)
            if not done:
                self._remove(path)
        return done

    @staticmethod
    def _remove(path: Path) -> None:
        path.unlink(missing_ok=True)

    async def _fill(self, fd: int, size: int) -> bool:
        self._look()
        offset = 0
        while offset < size:
            if not self._measure_light():
                if await happens_within(self._stop, _LOOK_S):
                    return False
                continue
            piece = min(ZEROS_BYTES_MAX, size - offset)
            written = await in_thread(self._disk.write_zeros, fd, offset, piece)
            offset += written
            self.written_bytes += written
            if await happens_within(self._stop, written / self._bytes_per_s):
                return False
        return True

    def _look(self) -> None:
        self._looked_at_s = asyncio.get_running_loop().time()
        self._looked_at_bytes = self._committed()

    def _measure_light(self) -> bool:
        """Measures again what the bookie commits, after `_LOOK_S`; returns whether it is little."""
        elapsed_s = asyncio.get_running_loop().time() - self._looked_at_s
        if elapsed_s >= _LOOK_S:
            rate = (self._committed() - self._looked_at_bytes) / elapsed_s
            self._light = rate <= self._bytes_per_s * _LIGHT_SHARE
            self._look()
        return self._light
