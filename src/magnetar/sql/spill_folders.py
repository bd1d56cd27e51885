"""Folders for rows that do not fit into the memory of a query.

Each query has a folder of its own, which only its user can read. A lock on the folder says that the query is
running. A query that was killed leaves its folder behind; the next one finds it without a lock, and deletes
it.

A folder is there for a moment before it is locked, and a cleaner could take it then. So its owner looks, once
it has the lock, whether the folder is still the one under its name.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "magnetar-sql-"


class SpillFolder:
    """A folder of one query, from its making to `close`."""

    def __init__(self, parent: str) -> None:
        """Makes the folder, after those of queries that were killed are deleted. `parent`: an existing
        folder; empty: the system's temporary folder. Raises OSError."""
        parent = parent or tempfile.gettempdir()
        delete_left_behind(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                # A cleaner took it at once.
                continue
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if _is_at(self._lock, self.path):
                return
            os.close(self._lock)

    def close(self) -> None:
        """Deletes the folder; may be called twice."""
        if self._lock >= 0:
            # The lock is kept until the end: a cleaner would delete the same files.
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def delete_left_behind(parent: str = "") -> None:
    """Deletes this user's folders of queries that were killed. `parent`: as for a SpillFolder."""
    for left in _left_behind(parent or tempfile.gettempdir()):
        shutil.rmtree(left, ignore_errors=True)


def _left_behind(parent: str) -> Iterator[Path]:
    """This user's folders that no process has locked. Each is locked while the caller deletes it."""
    for path in Path(parent).glob(f"{PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            # Of another user, a file or a link, or deleted meanwhile.
            continue
        try:
            if os.fstat(lock).st_uid != os.getuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        except BlockingIOError:
            # Its query is running.
            continue
        finally:
            os.close(lock)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    own = os.fstat(descriptor)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
