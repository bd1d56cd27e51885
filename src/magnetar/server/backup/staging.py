"""Stages one point in time of a data folder: hard links to unchangeable files, and a copy of the metadata.

    STAGED/bookie/...             links to the segments, and the small files of the folder
    STAGED/bookies/...            in place of it: the same for bookies beside the broker (beside.py)
    STAGED/metadata/metadata.db   copy of the metadata, in one read transaction
    STAGED/offloaded/...          links to objects, if the object store lies in the data folder
    STAGED/functions/...          links to files of functions and packages
    STAGED/STAGED                 JSON: the time, and the valid length of segments in use

README.md gives the order of the steps and why it is sufficient.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import StorageError
from magnetar.bookie.belonging import BELONGS_FILE
from magnetar.bookie.given_up import GIVEN_UP_FILE
from magnetar.metadata.sqlite_check import check_rows
from magnetar.metadata.sqlite_file import check_left_log
from magnetar.runtime.tasks import begin, happens_within
from magnetar.runtime.threads import in_thread
from magnetar.server.backup.manifest import BackupError
from magnetar.server.storage.datafolder import DataFolder, packages_dir
from magnetar.server.storage.opened_stores import Kept

_log = logging.getLogger("magnetar.backup")

STAGED_FILE: Final = "STAGED"
KEPT_S: Final = 600.0
"""Seconds without a sign of its copying process after which a point in time is removed: its links hold disk
space."""

_SMALL_FILES: Final = ("FORMAT", "INSTANCEID", BELONGS_FILE, GIVEN_UP_FILE)
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Staged:
    """A point in time that is ready to be copied."""

    staged_id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Sources:
    """Paths of the parts of a data folder. Its methods block."""

    metadata_file: Path
    bookie_dir: Path
    bookies_dir: Path
    """Folder of bookies beside the broker; missing when the broker stores messages itself."""
    offloaded_dir: Path
    packages_dir: Path
    """Folder of the files of functions and packages; missing until there are any."""

    @classmethod
    def of(cls, folder: DataFolder) -> Sources:
        """The staging of a standalone server."""
        return cls(
            folder.metadata_file,
            folder.bookie_dir,
            folder.bookies_dir,
            folder.offloaded_dir,
            packages_dir(folder.root),
        )

    def link(self, staged: Path) -> None:
        """Links the files that have no link in `staged` yet. Raises OSError."""
        for source, target in self._files(staged):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Gone since it was listed: dead before the point in time, or linked in the first round.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(source, target)

    def _files(self, staged: Path) -> Iterator[tuple[Path, Path]]:
        for segment in (self.bookie_dir / "segments").glob("*.seg"):
            yield segment, staged / "bookie" / "segments" / segment.name
        for segment in self.bookies_dir.glob("*/segments/*.seg"):
            yield segment, staged / "bookies" / segment.relative_to(self.bookies_dir)
        for place, _, names in os.walk(self.offloaded_dir):
            for name in names:
                source = Path(place) / name
                yield source, staged / "offloaded" / source.relative_to(self.offloaded_dir)
        # A file that arrives has another name until it is whole.
        for file in self.packages_dir.glob("[0-9a-f]*/*"):
            yield file, packages_dir(staged) / file.relative_to(self.packages_dir)

    def copy_metadata(self, staged: Path) -> None:
        """Copies the metadata of one moment, and small files beside the messages. Raises OSError,
        sqlite3.Error."""
        for source, target in self._small_files(staged):
            with contextlib.suppress(FileNotFoundError):  # optional: not every installation has each of them
                said = source.read_bytes()
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(said)
        for _ in range(_TRIES):
            self._copy_tree(staged)
            # A file of before the metadata and a metadata of two generations later would be refused: a pair
            # that no crash leaves (bookie/belonging.py). One step at most lies between two equal files.
            belongs = self.bookie_dir / BELONGS_FILE
            said = belongs.read_bytes() if belongs.exists() else b""
            copied = staged / "bookie" / BELONGS_FILE
            if said == (copied.read_bytes() if copied.exists() else b""):
                return
            copied.write_bytes(said)
        raise OSError(errno.EAGAIN, f"{belongs} changes all the time")

    def _small_files(self, staged: Path) -> Iterator[tuple[Path, Path]]:
        for name in _SMALL_FILES:
            yield self.bookie_dir / name, staged / "bookie" / name
        if self.bookies_dir.exists():
            # A broker that keeps messages itself needs none of it.
            from magnetar.server.backup.beside import small_files

            root = self.bookies_dir.parent
            for file in small_files(root):
                yield root / file, staged / file

    def _copy_tree(self, staged: Path) -> None:
        target = staged / "metadata" / "metadata.db"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        with (
            contextlib.closing(sqlite3.connect(f"file:{self.metadata_file}?mode=rw", uri=True)) as source,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy, pages=-1)

    def check_metadata(self, staged: Path) -> None:
        """Reads every row of the copy. Raises BackupError when it is damaged, so that no server could start
        with it."""
        copied = staged / "metadata" / "metadata.db"
        try:
            with contextlib.closing(sqlite3.connect(copied, isolation_level=None)) as copy:
                check_rows(copy, self.metadata_file)
        except (StorageError, sqlite3.Error) as error:
            raise BackupError(
                f"no backup was made, because no server could start with it; earlier backups are complete: "
                f"{error}"
            ) from error

    @staticmethod
    def note(staged: Path, created_ms: int, ends: Mapping[str, int]) -> None:
        """Writes the file STAGED. `ends`: the segments in use, and the valid length of each."""
        growing = {}
        for name, size in ends.items():
            last = staged / name
            for segment in last.parent.glob("*.seg"):
                # Made ahead: it is empty, and will not be when it is copied.
                if segment.name > last.name:
                    segment.unlink()
            # Else it came after the links were made, and so is later than the point in time.
            if last.is_file():
                growing[name] = size
        (staged / STAGED_FILE).write_text(json.dumps({"created_ms": created_ms, "growing": growing}))


class Staging:
    """Points in time of a data folder in use, one at a time."""

    def __init__(self, folder: DataFolder, kept: Kept, clock: Clock) -> None:
        """`kept`: the messages in the folder. Removes the points in time of an earlier process."""
        self._root = folder.staged_dir
        self._sources = Sources.of(folder)
        self._clock = clock
        self._kept = kept
        self._current: Staged | None = None
        self._beginning = self._closed = False
        self._seen = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        shutil.rmtree(self._root, ignore_errors=True)

    async def begin(self) -> Staged:
        """Takes a point in time. Raises BackupError when another one exists or it fails."""
        if self._current is not None or self._beginning:
            raise BackupError(
                "a backup of this folder is under way: wait for it; one broken off is forgotten after"
                f" {KEPT_S / 60:.0f} minutes"
            )
        staged_id = secrets.token_hex(8)
        staged = Staged(staged_id, self._root / staged_id)
        self._beginning = True
        try:
            await self._take(staged.folder)
            await in_thread(self._sources.check_metadata, staged.folder)
        except (OSError, sqlite3.Error) as error:
            raise BackupError(f"no point in time of {self._root.parent} could be taken: {error}") from error
        else:
            if self._closed:
                raise BackupError("the broker stops")
            self._current = staged
        finally:
            self._beginning = False
            if self._current is not staged:
                shutil.rmtree(staged.folder, ignore_errors=True)
        self._seen.clear()
        self._watch = begin(self._forget_unused(staged.staged_id))
        _log.info("point in time %s is ready to be copied", staged.staged_id)
        return staged

    async def _take(self, staged: Path) -> None:
        async with self._kept.held() as ends:
            await in_thread(self._sources.link, staged)
            created_ms = self._clock.now_ms()
            await in_thread(self._sources.copy_metadata, staged)
            await in_thread(self._sources.link, staged)
            self._sources.note(staged, created_ms, await ends())

    async def renew(self, staged_id: str) -> bool:
        """Notes that the copying continues; False when the point in time was removed."""
        if self._current is None or self._current.staged_id != staged_id:
            return False
        self._seen.set()
        return True

    async def end(self, staged_id: str) -> bool:
        """Removes a point in time; False when there was none."""
        if self._current is None or self._current.staged_id != staged_id:
            return False
        current, self._current = self._current, None
        if self._watch is not None and self._watch is not asyncio.current_task():
            self._watch.cancel()
            self._watch = None
        await in_thread(shutil.rmtree, current.folder, ignore_errors=True)
        return True

    async def close(self) -> None:
        """Removes the point in time. One that is being taken is removed when it is complete."""
        self._closed = True
        if self._current is not None:
            await self.end(self._current.staged_id)

    async def _forget_unused(self, staged_id: str) -> None:
        while await happens_within(self._seen, KEPT_S):
            self._seen.clear()
        _log.warning("point in time %s is removed, because no backup copies it", staged_id)
        await self.end(staged_id)


@contextmanager
def of_unused(root: Path, clock: Clock) -> Iterator[Path]:
    """A point in time of a folder that no process uses, with its bookies; blocks.

    Raises StartupError, BackupError, CorruptDataError.
    """
    # The broker, which starts with this module, needs none of it.
    from magnetar.server.backup.beside import lock_bookies

    # Before anything is made there, or its mode is changed.
    if not (root / "FORMAT").is_file():
        raise BackupError(f"{root} is not a data folder: it has no file FORMAT")
    folder = DataFolder(root)
    staged = folder.staged_dir / "unused"
    held = ExitStack()
    try:
        shutil.rmtree(folder.staged_dir, ignore_errors=True)
        sources = Sources.of(folder)
        try:
            check_left_log(sources.metadata_file)
            lock_bookies(folder, held)
            sources.link(staged)
            sources.copy_metadata(staged)
            sources.check_metadata(staged)
            sources.note(staged, clock.now_ms(), {})
        except (OSError, sqlite3.Error) as error:
            raise BackupError(f"no point in time of {root} could be taken: {error}") from error
        yield staged
    finally:
        shutil.rmtree(folder.staged_dir, ignore_errors=True)
        held.close()
        folder.release()
