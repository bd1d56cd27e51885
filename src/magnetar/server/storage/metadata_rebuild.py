"""Replaces a damaged metadata file by a rebuilt one; the server must not run."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from magnetar.base.errors import StartupError
from magnetar.metadata.sqlite_rebuild import rebuild
from magnetar.runtime.durable_file import sync_folder
from magnetar.runtime.file_lock import FileLock


def rebuild_metadata(data: Path, *, dry_run: bool) -> dict[str, object]:
    """Rebuilds the metadata and returns what was kept, corrected and lost. The damaged file stays beside the
    new one.

    Raises StartupError when a server runs, there is no metadata, or none of it can be read.
    """
    file = data / "metadata" / "metadata.db"
    if not file.exists():
        raise StartupError(f"{data} has no metadata/metadata.db: name the server's folder with --data")
    lock = FileLock(data / "LOCK", f"the data folder {data}")
    fresh, aside = file.with_name("metadata.db.fresh"), file.with_name("metadata.db.damaged")
    try:
        fresh.unlink(missing_ok=True)
        done = rebuild(file, fresh)
        if not dry_run:
            if aside.exists():
                raise StartupError(f"{aside} is there from before: move it away first")
            file.rename(aside)
            for rest in ("-wal", "-shm"):
                # SQLite leaves neither behind when it was closed cleanly.
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{file}{rest}").rename(f"{aside}{rest}")
            fresh.rename(file)
            sync_folder(file.parent)
    except sqlite3.Error as error:
        raise StartupError(f"{file} cannot be read at all: {error}; restore it from a backup") from error
    finally:
        fresh.unlink(missing_ok=True)
        lock.release()
    return {"kept": done.kept, "repaired": done.repaired, "lost": done.lost}
