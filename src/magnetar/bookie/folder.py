"""The store's folder.

FORMAT                     version of this layout: decimal, LF
INSTANCEID                 random UUID text: the store's identity, also in every segment's header
BELONGS                    whose metadata these messages belong to, and more (belonging.py)
DECISIONS                  what an operator decided and is not done yet (decisions.py)
LOCK                       held by the process that uses the folder (runtime/file_lock.py)
ROSTER                     which segments there are (roster.py)
RESERVE                    space for a small segment and files beside it, given up by a start on a full disk
segments/<16 hex>.seg      segments, ascending ids
segments/<16 hex>.new      a segment in preparation: holds nothing yet
segments/<16 hex>.spare    a file for a segment to come: what it holds has no meaning (spares.py)
segments/<16 hex>.stray    a segment that had another's name, on its way to its own (opening.py)
quarantine/                files that were set aside: nothing of them is used, nothing is deleted
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.bookie.files import Disk
from magnetar.runtime.durable_file import settle_folder
from magnetar.runtime.private_folder import keep_private

FORMAT_VERSION: Final = 1
FORMAT_FILE: Final = "FORMAT"
INSTANCE_FILE: Final = "INSTANCEID"
LOCK_FILE: Final = "LOCK"
RESERVE_FILE: Final = "RESERVE"
_SEGMENTS: Final = "segments"
_SEALED_SUFFIX: Final = ".seg"
_NEW_SUFFIX: Final = ".new"
_SPARE_SUFFIX: Final = ".spare"
_STRAY_SUFFIX: Final = ".stray"
_QUARANTINE: Final = "quarantine"


class StoreFolder:
    """Paths and identity of a store."""

    def __init__(self, root: Path, instance: bytes) -> None:
        self.root = root
        self.segments = root / _SEGMENTS
        self.instance = instance
        """16 bytes."""

    @classmethod
    def open(cls, root: Path, disk: Disk, *, sync: bool) -> StoreFolder:
        """Creates the folder if necessary, and checks that it is a store of this format. Raises
        StartupError."""
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            keep_private(root)
            (root / _SEGMENTS).mkdir(exist_ok=True)
            version = _read_text(root / FORMAT_FILE)
            if version is None:
                if any(_segment_paths(root / _SEGMENTS)):
                    raise StartupError(
                        f"the data folder {root} has segments but no {FORMAT_FILE} file: restore that file"
                    )
                if sync:
                    settle_folder(root)
                _write_text(root / INSTANCE_FILE, f"{uuid.uuid4()}\n", disk, sync=sync)
                _write_text(root / FORMAT_FILE, f"{FORMAT_VERSION}\n", disk, sync=sync)
                version = str(FORMAT_VERSION)
            _check_version(root, version)
            instance = uuid.UUID(_read_text(root / INSTANCE_FILE) or "").bytes
        except OSError as error:
            raise StartupError(f"cannot use the data folder {root}: {error.strerror}") from error
        except ValueError as error:
            raise StartupError(
                f"the data folder {root} has no valid {INSTANCE_FILE} file: restore that file"
            ) from error
        return cls(root, instance)

    @property
    def reserve_file(self) -> Path:
        """File whose space is kept for a start on a full disk."""
        return self.root / RESERVE_FILE

    def segment_path(self, segment_id: int) -> Path:
        """Path of a segment."""
        return self.segments / f"{segment_id:016x}{_SEALED_SUFFIX}"

    def new_segment_path(self, segment_id: int) -> Path:
        """Path of a segment during its preparation."""
        return self.segments / f"{segment_id:016x}{_NEW_SUFFIX}"

    def spare_path(self, path: Path) -> Path:
        """Path of a spare: the file of a dead segment that waits for its next use."""
        return self.segments / f"{path.stem}{_SPARE_SUFFIX}"

    def spare_paths(self) -> list[Path]:
        """The spares in the folder."""
        return list(self.segments.glob(f"*{_SPARE_SUFFIX}"))

    def stray_path(self, segment_id: int) -> Path:
        """Path for a segment that was found under the name of `segment_id` but is another one."""
        return self.segments / f"{segment_id:016x}{_STRAY_SUFFIX}"

    def stray_paths(self) -> list[Path]:
        """The segments in the folder that wait for their own names."""
        return sorted(self.segments.glob(f"*{_STRAY_SUFFIX}"))

    def set_aside(self, path: Path) -> Path:
        """Moves a file to the quarantine, under a free name; returns the new path. Raises OSError."""
        quarantine = self.root / _QUARANTINE
        quarantine.mkdir(exist_ok=True)
        number, target = 1, quarantine / path.name
        while target.exists():
            number, target = number + 1, quarantine / f"{path.name}.{number + 1}"
        path.rename(target)
        return target

    def segment_ids(self) -> list[int]:
        """Ids of the segments in the folder, ascending. Raises OSError."""
        return sorted(int(path.stem, 16) for path in _segment_paths(self.segments))

    def remove_unfinished(self) -> None:
        """Deletes segments whose preparation was interrupted."""
        for path in self.segments.glob(f"*{_NEW_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # the other thread renamed or removed it
                path.unlink()


def _segment_paths(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"*{_SEALED_SUFFIX}") if len(path.stem) == 16]


def _check_version(root: Path, text: str) -> None:
    if not text.isdigit():
        raise StartupError(f"the data folder {root} has a damaged {FORMAT_FILE} file: restore that file")
    if int(text) > FORMAT_VERSION:
        raise StartupError(
            f"the data folder {root} has format {text}, this version knows up to {FORMAT_VERSION}: "
            "use a newer version of magnetar, or another folder"
        )


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _write_text(path: Path, text: str, disk: Disk, *, sync: bool) -> None:
    """Replaces a small file; a crash leaves the old or the new content."""
    unfinished = path.with_name(path.name + ".new")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, text.encode())
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    unfinished.replace(path)
    if sync:
        disk.sync_folder(path.parent)
