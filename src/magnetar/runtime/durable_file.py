"""Small files that a crash leaves either whole or unchanged. Blocking."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(file: Path, data: bytes, *, part: Path | None = None) -> None:
    """Replaces `file`; durable on return. Raises OSError.

    `part`: the temporary file that is written first and then renamed, on the same file system; None puts it
    beside `file`.
    """
    part = part or file.with_name(f"{file.name}.new")
    with part.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
    sync_folder(file.parent)


def settle_folder(folder: Path) -> None:
    """Makes the name of a folder durable, and the names of the folders above it. Raises OSError.

    For a folder that was just created, perhaps by a process that was killed before it could call this: which
    parents were created with it is not known then.
    """
    parent, *above = folder.absolute().parents
    sync_folder(parent)
    for each in above:
        try:
            sync_folder(each)
        except OSError:
            # This process may not open it, so it did not create it either.
            return


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
