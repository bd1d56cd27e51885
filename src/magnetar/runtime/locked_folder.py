"""A temporary folder that goes with its processes, also when they are killed.

A folder is locked (flock) from before it gets its name until the last process that has its descriptor has
ended. So one without a lock belongs to no process that lives, and the next process that makes one of the same
kind deletes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_MAKING: Final = "magnetar-making-"
_YOUNG_S: Final = 60.0
"""Seconds for which a folder that is being made may have no lock yet."""


class LockedFolder:
    """A folder that this process has, and those that inherit `descriptor`. Made by `make`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use `make`."""
        self.path = path
        self.descriptor = descriptor
        """Holds the lock, as does each copy of it."""

    @classmethod
    def make(cls, prefix: str) -> LockedFolder:
        """A new folder among the system's temporary ones, which only this user can enter. Deletes those with
        the same prefix whose processes have all ended. Raises OSError."""
        made = Path(tempfile.mkdtemp(prefix=_MAKING))
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = made.rename(made.with_name(made.name.replace(_MAKING, prefix, 1)))
        _delete_abandoned(prefix, path.stat().st_mtime)
        return cls(path, descriptor)

    def close(self) -> None:
        """Deletes the folder; may be called twice."""
        if self.descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.descriptor)
            self.descriptor = -1


def _delete_abandoned(prefix: str, now_s: float) -> None:
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{prefix}*"):
        _delete_unlocked(folder)
    for folder in place.glob(f"{_MAKING}*"):
        try:
            is_young = now_s - folder.stat().st_mtime < _YOUNG_S
        except OSError:  # it has its name by now
            continue
        if not is_young:
            _delete_unlocked(folder)


def _delete_unlocked(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another process deleted it, or another user has it: nothing to do here
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its processes live
        return
    finally:
        os.close(descriptor)
