"""One process per data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from magnetar.base.errors import StartupError

LOCK_FILE = "LOCK"


class FolderLock:
    """An exclusive lock on a folder, held until `release` or the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Takes the lock; the folder must exist. Raises StartupError when another process holds it."""
        path = folder / LOCK_FILE
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StartupError(f"cannot use the data folder {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            process = f"process {holder}" if holder.isdigit() else "another process"
            raise StartupError(
                f"the data folder {folder} is in use by {process}: stop it, or choose another folder"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the lock back; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
