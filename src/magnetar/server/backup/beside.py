"""Messages on bookies beside a broker, as a part of a point in time: of a data folder that nobody uses.

STAGED/bookies/...            where the bookies meet, but for who is alive
STAGED/bookies/NAME/...       links to the segments of a bookie, and the small files of its folder
STAGED/GIVEN-UP.json          entries that were given up, where there are some
"""

from __future__ import annotations

import os
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
from magnetar.server.datafolder import DataFolder

_MEETING_FILES: Final = ("instance", "doubt", "cookies/*")
_SMALL_FILES: Final = (FORMAT_FILE, INSTANCE_FILE, BELONGS_FILE, COOKIE_FILE, MEMBER_FILE, UNSURE_FILE)


def stage_bookies(folder: DataFolder, staged: Path, held: ExitStack) -> None:
    """Links and copies what there is of bookies. Their folders are locked until `held` ends.

    Raises StartupError: one of them runs; OSError.
    """
    root = folder.bookies_dir
    files = [file for pattern in _MEETING_FILES for file in root.glob(pattern)]
    for bookie in (store.parent for store in root.glob(f"*/{FORMAT_FILE}")):
        # It outlives a broker that was killed by a moment.
        lock = FileLock(bookie / LOCK_FILE, f"the folder of {bookie.name}")
        held.callback(lock.release)
        files += (bookie / name for name in _SMALL_FILES)
        for segment in (bookie / "segments").glob("*.seg"):
            target = staged / segment.relative_to(folder.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(segment, target)
    if root.exists():
        files.append(folder.root / GIVEN_UP_FILE)
    for file in files:
        if file.exists():
            target = staged / file.relative_to(folder.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
