"""The tables of the embedded store's file, their checksums, and the upgrade of older files.

sqlite_nodes.py describes the tables. Format 1 had no totals and no checksums of counters.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from typing import Final

APPLICATION_ID: Final = 0x4D474E54
"""Mark in the file's header, the letters MGNT, which distinguishes it from other SQLite files."""

FORMAT_VERSION: Final = 2
"""In the file's header (`user_version`); a higher one was written by a newer release."""

WITHOUT_TOTALS: Final = 1

_NODE: Final = (
    """CREATE TABLE node (
    parent TEXT NOT NULL, name TEXT NOT NULL, data BLOB, version INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL, session INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID""",
    "CREATE INDEX node_ephemeral ON node (ephemeral) WHERE ephemeral = 1",
    "CREATE TABLE session (number INTEGER NOT NULL)",
)
_SEQUENCE: Final = (
    "CREATE TABLE sequence (parent TEXT PRIMARY KEY, next INTEGER NOT NULL, checksum INTEGER NOT NULL) "
    "WITHOUT ROWID"
)


def _triggers(table: str) -> tuple[str, ...]:
    changes = {
        "INSERT": "count = count + 1, checksums = checksums + NEW.checksum",
        "UPDATE": "checksums = checksums + NEW.checksum - OLD.checksum",
        "DELETE": "count = count - 1, checksums = checksums - OLD.checksum",
    }
    return tuple(
        f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} "
        f"BEGIN UPDATE total SET {change}; END"
        for event, change in changes.items()
    )


_TOTALS: Final = (
    "CREATE TABLE total (count INTEGER NOT NULL, checksums INTEGER NOT NULL)",
    *_triggers("node"),
    *_triggers("sequence"),
)
STATEMENTS: Final = frozenset((*_NODE, _SEQUENCE, *_TOTALS))
"""The exact content that `sqlite_master` must have: a flipped bit in a trigger would make the totals
wrong."""


def row_checksum(parent: bytes, name: bytes, data: bytes | None, numbers: Sequence[int] = ()) -> int:
    """Checksum of a node: its path, its value, and its other fields in the order of the columns."""
    key = b"%b\n%b" % (parent, name)
    if data is None:
        return zlib.crc32(key)
    fields = "\n".join(map(str, numbers)).encode()
    return zlib.crc32(data, zlib.crc32(b"%b\n%b\n" % (key, fields)))


def sequence_checksum(parent: bytes, number: int) -> int:
    """Checksum of a counter."""
    return zlib.crc32(b"%b\n%d" % (parent, number))


def create_tables(connection: sqlite3.Connection) -> None:
    """Makes a new file's tables, all or none. Raises sqlite3.Error."""
    statements = (*_NODE, _SEQUENCE, *_TOTALS)
    _at_once(
        connection,
        *statements,
        "INSERT INTO session VALUES (0)",
        "INSERT INTO total VALUES (0, 0)",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {FORMAT_VERSION}",
    )


def add_totals(connection: sqlite3.Connection) -> None:
    """Upgrades a checked file of format 1 to this format. Raises sqlite3.Error."""
    connection.create_function("counter_checksum", 2, _counter_checksum, deterministic=True)
    _at_once(
        connection,
        "ALTER TABLE sequence RENAME TO sequence_before",
        _SEQUENCE,
        "INSERT INTO sequence SELECT parent, next, counter_checksum(parent, next) FROM sequence_before",
        "DROP TABLE sequence_before",
        *_TOTALS,
        "INSERT INTO total SELECT count(*), coalesce(sum(checksum), 0) FROM "
        "(SELECT checksum FROM node UNION ALL SELECT checksum FROM sequence)",
        f"PRAGMA user_version = {FORMAT_VERSION}",
    )


def _counter_checksum(parent: str, number: int) -> int:
    return sequence_checksum(parent.encode(), number)


def _at_once(connection: sqlite3.Connection, *statements: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
