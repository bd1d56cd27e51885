"""One process per folder: a lock that the system releases when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from magnetar.base.errors import StartupError


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file for the block, among all threads and processes that see it; waits
    for its holder.

    On Linux this works over NFS too. Raises OSError.
    """
    with file.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


class FileLock:
    """An exclusive lock (flock) on a file whose text names the process that holds it.

    Held until `release` or the end of the process.
    """

    def __init__(self, path: Path, what: str) -> None:
        """Takes the lock; the folder of `path` must exist.

        Raises StartupError, which names `what` and the process that uses it; OSError.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            process = f"process {holder}" if holder.isdigit() else "another process"
            raise StartupError(f"{what} is in use by {process}: stop it, or choose another folder") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the lock back; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
