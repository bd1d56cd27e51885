"""Restores a backup from a repository into a new data folder. Blocking."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.runtime.durable_file import sync_folder, write_durably
from magnetar.server.backup.manifest import BackupError, Manifest
from magnetar.server.backup.repository import Repository, copy_checked
from magnetar.server.storage.datafolder import FORMAT_VERSION

_UNFINISHED: Final = "RESTORING"
"""Name of the file that marks an incomplete folder."""


def restore(
    repository: Repository, manifest: Manifest, data: Path, *, progress: Callable[[int], None]
) -> None:
    """Restores a backup into the data folder `data`, which must be empty or missing. Raises BackupError.

    Each file is compared with its checksum. The folder gets its name when everything in it is durable.
    """
    data = data.resolve()
    try:
        # It is filled under another name, and renamed at the end.
        if data.is_mount() or data == Path.cwd():
            what = "the current folder" if data == Path.cwd() else "a mount point"
            raise BackupError(f"{data} is {what}, which cannot be replaced: name a folder in it")
        if data.exists() and (not data.is_dir() or any(data.iterdir())):
            raise BackupError(f"{data} is not empty: name a folder that is not there yet")
        part = data.with_name(f"{data.name}.restoring")
        _clear(part)
        part.mkdir(parents=True, mode=0o700)
        (part / _UNFINISHED).touch()
        for row in manifest.files:
            target = part / row.path
            if not target.resolve().is_relative_to(part.resolve()):
                raise BackupError(
                    f"{manifest.backup_id} names {row.path}, which lies outside of a data folder"
                )
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            copy_checked(repository.path_of(row.sha256), target, row, progress)
        _finish(part, data)
    except OSError as error:
        raise BackupError(f"{data} could not be restored: {error.strerror or error}") from error


def _clear(part: Path) -> None:
    """Removes the remains of an interrupted restore. Raises BackupError."""
    if not part.exists():
        return
    mark = part / _UNFINISHED
    # An empty one was left before it had its mark, or after it had lost it: the mark is the last thing to go.
    if not part.is_dir() or (any(part.iterdir()) and not mark.exists()):
        raise BackupError(f"{part} is in the way: it is not ours, move it elsewhere")
    for each in part.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each != mark:
            each.unlink()
    mark.unlink(missing_ok=True)
    part.rmdir()


def _finish(part: Path, data: Path) -> None:
    write_durably(part / "FORMAT", f"{FORMAT_VERSION}\n".encode())
    for folder in sorted({path.parent for path in part.rglob("*")}, reverse=True):
        sync_folder(folder)
    with contextlib.suppress(FileNotFoundError):  # it may be there, empty, or not at all
        data.rmdir()
    part.replace(data)
    sync_folder(data.parent)
    # Last: without it an interrupted folder would count as another program's. A leftover is harmless.
    with contextlib.suppress(OSError):
        (data / _UNFINISHED).unlink()
