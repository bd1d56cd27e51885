"""Opens the SQLite file of the embedded store, and translates its errors."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from magnetar.base.errors import (
    CorruptDataError,
    DiskFullError,
    StartupError,
    StorageError,
    StorageFailedError,
)
from magnetar.metadata.sqlite_check import check_rows
from magnetar.metadata.sqlite_schema import (
    APPLICATION_ID,
    FORMAT_VERSION,
    WITHOUT_TOTALS,
    add_totals,
    create_tables,
)

ROOM_BYTES_MIN: Final = 1 << 20
"""Bytes. With less free space than this, an input/output error of SQLite counts as a full disk: SQLite
reports a full disk so when, for instance, it cannot enlarge its shared-memory file."""

_ROOM_CODES: Final = frozenset(
    {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN}
)
_CORRUPT_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def check_left_log(file: Path, *, durable: bool = True) -> None:
    """Checks the log that a killed process left behind, and repairs a single flipped bit.

    Call it before the file is opened: SQLite drops damaged commits, and deletes the log with the last
    connection.

    Raises CorruptDataError, OSError.
    """
    if any(file.with_name(file.name + end).exists() for end in ("-wal", "-shm")):
        # Only a process that was killed leaves them.
        from magnetar.metadata.sqlite_log import check_log

        check_log(file, durable=durable)


def connect(file: Path, *, durable: bool, first: bool = False) -> sqlite3.Connection:
    """Opens a connection in write-ahead mode, without implicit transactions.

    `first`: the file is not in use yet, so a log that was left is checked for damage. Raises sqlite3.Error,
    OSError, CorruptDataError.
    """
    if first:
        check_left_log(file, durable=durable)
    # The loop and the writer thread take turns on a connection, never at the same time.
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL syncs the write-ahead log at each commit; NORMAL would not until a checkpoint.
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
    except UnicodeDecodeError as error:
        # SQLite's message quotes the damaged schema, which may not be valid UTF-8.
        connection.close()
        raise CorruptDataError(str(file), 0, "its tables cannot be read: restore it from a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def leave(connections: list[sqlite3.Connection], file: Path) -> None:
    """Closes all connections without a copy of the log into the file, which the last writable one would
    do."""
    if not connections:
        return
    reader = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        with contextlib.suppress(sqlite3.Error):
            # Only after a read does SQLite count the connection as a user of the log.
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        for connection in connections:
            connection.close()
    finally:
        reader.close()


def peek(file: Path, path: str) -> bytes | None:
    """One value of a file that another process may use; None when it is absent. Raises sqlite3.Error."""
    parent, _, name = path.rpartition("/")
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        query = "SELECT data FROM node WHERE parent = ? AND name = ? AND data IS NOT NULL"
        row = connection.execute(query, (parent, name)).fetchone()
    finally:
        connection.close()
    return None if row is None else bytes(row[0])


def check_format(connection: sqlite3.Connection, file: Path) -> bool:
    """Makes the tables in a new file and returns True; checks every row of an existing file.

    Raises StartupError when the file is not ours or newer than this release, CorruptDataError, sqlite3.Error.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables == 0 and not found:
        create_tables(connection)
        return True
    if application != APPLICATION_ID:
        raise StartupError(f"{file} is not a metadata file of ours; move it away or use another data folder")
    if found > FORMAT_VERSION:
        raise StartupError(
            f"{file} has format {found}, this release knows up to {FORMAT_VERSION}; "
            "use the newer release or another data folder"
        )
    check_rows(connection, file, totals=found != WITHOUT_TOTALS)
    if found == WITHOUT_TOTALS:
        add_totals(connection)
    return False


def check_file(file: Path) -> None:
    """Checks every row of a file that may be in use. Raises StorageError when it is damaged or unreadable."""
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            check_rows(connection, file)
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise translated(error, file) from error


def empty_log(connection: sqlite3.Connection, file: Path) -> None:
    """Copies what an earlier process left in the write-ahead log into the file, and empties the log.

    That process may have ended because a sync failed. Its last frames are then in the page cache and look
    whole, but the kernel no longer tries to write them. Commits behind them would be lost in a power cut,
    because SQLite reads a log up to the first missing frame. On a full disk the log stays.
    Raises sqlite3.Error.
    """
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        if not isinstance(translated(error, file), DiskFullError):
            raise


def translated(error: sqlite3.Error | OSError, file: Path) -> StorageError:
    """The StorageError for an error of SQLite or the system."""
    folder = file.parent
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = -1
    else:
        code = getattr(error, "sqlite_errorcode", -1)
        full = code == sqlite3.SQLITE_FULL or (code in _ROOM_CODES and _room_bytes(folder) < ROOM_BYTES_MIN)
    if full:
        return DiskFullError(
            f"no space left in {folder}; free some, or move the data folder to a larger disk"
        )
    if code & 0xFF in _CORRUPT_CODES:
        return CorruptDataError(str(file), 0, str(error))
    return StorageFailedError(f"metadata in {folder}: {error}")


def _room_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
