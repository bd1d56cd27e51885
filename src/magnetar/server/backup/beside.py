"""Stages the bookies beside a broker as parts of a point in time.

STAGED/bookies/...            the bookies' common folder, without the list of live ones
STAGED/bookies/NAME/...       links to the segments of a bookie, and the small files of its folder
STAGED/GIVEN-UP.json          entries that were given up, where there are some
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from magnetar.bookie.belonging import BELONGS_FILE
from magnetar.bookie.folder import FORMAT_FILE, INSTANCE_FILE, LOCK_FILE
from magnetar.bookie.given_up import GIVEN_UP_FILE
from magnetar.bookie.network.entries import UNSURE_FILE
from magnetar.bookie.network.node import COOKIE_FILE
from magnetar.ledger.membership import MEMBER_FILE
from magnetar.runtime.file_lock import FileLock
from magnetar.server.storage.datafolder import DataFolder

_MEETING_FILES: Final = ("instance", "doubt", "cookies/*")
_SMALL_FILES: Final = (FORMAT_FILE, INSTANCE_FILE, BELONGS_FILE, COOKIE_FILE, MEMBER_FILE, UNSURE_FILE)


def small_files(root: Path) -> Iterator[Path]:
    """Paths in the data folder `root` of the files that are copied whole; some may not exist."""
    meeting = root / "bookies"
    found = [file for pattern in _MEETING_FILES for file in meeting.glob(pattern)]
    found += [store.parent / name for store in meeting.glob(f"*/{FORMAT_FILE}") for name in _SMALL_FILES]
    yield from (file.relative_to(root) for file in found)
    yield Path(GIVEN_UP_FILE)


def lock_bookies(folder: DataFolder, held: ExitStack) -> None:
    """Locks the bookies' folders until `held` ends. Raises StartupError when a bookie runs; OSError."""
    for store in folder.bookies_dir.glob(f"*/{FORMAT_FILE}"):
        # A bookie runs for a moment longer than a broker that was killed.
        lock = FileLock(store.parent / LOCK_FILE, f"the folder of {store.parent.name}")
        held.callback(lock.release)
