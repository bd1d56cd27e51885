"""Small files that a crash leaves whole or not at all. Blocking."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(file: Path, data: bytes, *, part: Path | None = None) -> None:
    """Replaces `file`; durable on return. Raises OSError.

    `part`: what is written first and then renamed, on the same file system; None: beside the file.
    """
    part = part or file.with_name(f"{file.name}.new")
    with part.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
    sync_folder(file.parent)


def settle_folder(folder: Path) -> None:
    """Makes the name of a folder durable, and those of the folders above it. Raises OSError.

    For a folder that was made now, or by a process that was killed before it could do this: which of those
    above were made with it is not known then.
    """
    parent, *above = folder.absolute().parents
    sync_folder(parent)
    for each in above:
        try:
            sync_folder(each)
        except OSError:
            # Not ours to sync, so not ours to make either.
            return


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
