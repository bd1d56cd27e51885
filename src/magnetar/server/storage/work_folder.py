"""The folder of files that are not uploaded yet."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError

_PREFIX: Final = "magnetar-offload-"
_YOUNG_S: Final = 60.0
"""Seconds for which a folder without a lock may be one that a process is about to lock."""


class WorkFolder:
    """A folder for temporary files, empty at the start: what an earlier process left belongs to no
    attempt."""

    def __init__(self, path: Path, lock: int = -1) -> None:
        """`lock`: descriptor of the locked folder, which is deleted at the end; -1: the folder stays."""
        self.path = path
        self._lock = lock

    @classmethod
    def emptied(cls, path: Path) -> WorkFolder:
        """The folder `path` of a data folder, which no other process uses. Raises StartupError."""
        try:
            path.mkdir(exist_ok=True)
            # The folder itself stays: on a full disk a new one may not fit.
            for left in path.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink()
        except OSError as error:
            raise StartupError(
                f"the folder {path} cannot be used: {error.strerror}; make room for it"
            ) from error
        return cls(path)

    @classmethod
    def own(cls) -> WorkFolder:
        """A new folder among the system's temporary ones, locked as long as this process lives. Deletes those
        of processes that were killed: each may have a file of hundreds of MiB. Raises StartupError."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now_s = folder.stat().st_mtime
            for other in folder.parent.glob(f"{_PREFIX}*"):
                _delete_abandoned(other, now_s)
        except OSError as error:
            raise StartupError(
                f"no temporary folder for history: {error.strerror}; make room in {tempfile.gettempdir()}"
            ) from error
        return cls(folder, lock)

    def close(self) -> None:
        """Deletes the folder if it goes with the process."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _delete_abandoned(folder: Path, now_s: float) -> None:
    """Deletes the folder of a process that has ended."""
    try:
        if now_s - folder.stat().st_mtime < _YOUNG_S:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another process deleted it, or another user has it: nothing to do here
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its process lives
        return
    finally:
        os.close(descriptor)
