"""The table of nodes in an SQLite file.

    node       parent TEXT, name TEXT       key; the path is parent/name
               data BLOB                    NULL for a node that exists only for its children
               version, created_ms, modified_ms, ephemeral (0|1), session   INTEGER
               checksum INTEGER             CRC-32 of all of the above
    sequence   parent TEXT, next INTEGER    counters of sequential puts
    session    number INTEGER               one row: how often the file was opened

SQLite checks frames of its write-ahead log, not pages of the file, so each row has its own checksum:
a flipped bit is reported and never served.
"""

from __future__ import annotations

import sqlite3
import zlib
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.metadata import paths
from magnetar.metadata.tree import Node

APPLICATION_ID: Final = 0x4D474E54
"""In the file's header, so that `file` and we tell it from other SQLite files: "MGNT"."""

FORMAT_VERSION: Final = 1
"""In the file's header (`user_version`); a higher one was written by a newer release."""

SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE node (
    parent TEXT NOT NULL, name TEXT NOT NULL, data BLOB, version INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL, session INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX node_ephemeral ON node (ephemeral) WHERE ephemeral = 1;
CREATE TABLE sequence (parent TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE session (number INTEGER NOT NULL);
INSERT INTO session VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
COMMIT;
"""

_GET: Final = (
    "SELECT data, version, created_ms, modified_ms, ephemeral, session, checksum "
    "FROM node WHERE parent = ? AND name = ?"
)
_BELOW: Final = "parent = :path OR (parent > :path || '/' AND parent < :path || '0')"


def _checksum(parent: str, name: str, node: Node | None) -> int:
    if node is None:
        return zlib.crc32(f"{parent}\n{name}".encode())
    fields = (
        f"{parent}\n{name}\n{node.version}\n{node.created_ms}\n{node.modified_ms}\n"
        f"{node.ephemeral:d}\n{node.session}\n"
    )
    return zlib.crc32(node.data, zlib.crc32(fields.encode()))


class SqliteNodes:
    """A `NodeTable` on one connection; the caller begins and commits. Raises sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        """`file` is named in errors."""
        self._connection = connection
        self._file = file

    def get(self, parent: str, name: str) -> Node | None:
        row = self._connection.execute(_GET, (parent, name)).fetchone()
        if row is None or row[0] is None:
            return None
        data, version, created_ms, modified_ms, ephemeral, session, checksum = row
        node = Node(data, version, created_ms, modified_ms, ephemeral == 1, session)
        if _checksum(parent, name, node) != checksum:
            path = paths.join(parent, name)
            raise CorruptDataError(self._file, 0, f"the value of {path} fails its checksum")
        return node

    def listed(self, parent: str, name: str) -> bool:
        query = "SELECT 1 FROM node WHERE parent = ? AND name = ?"
        return self._connection.execute(query, (parent, name)).fetchone() is not None

    def has_children(self, path: str) -> bool:
        query = "SELECT 1 FROM node WHERE parent = ? LIMIT 1"
        return self._connection.execute(query, (path,)).fetchone() is not None

    def children(self, path: str) -> list[str]:
        query = "SELECT name FROM node WHERE parent = ? ORDER BY name"
        return [name for (name,) in self._connection.execute(query, (path,))]

    def store(self, parent: str, name: str, node: Node | None) -> None:
        columns = (
            (None, 0, 0, 0, 0, 0)
            if node is None
            else (node.data, node.version, node.created_ms, node.modified_ms, node.ephemeral, node.session)
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (parent, name, *columns, _checksum(parent, name, node)),
        )

    def remove(self, parent: str, name: str) -> None:
        self._connection.execute("DELETE FROM node WHERE parent = ? AND name = ?", (parent, name))

    def below(self, path: str) -> list[tuple[str, str, bool]]:
        # A parent's path is a prefix of its children's, so descending order puts children first.
        where, arguments = self._where_below(path)
        query = f"SELECT parent, name, data IS NOT NULL FROM node {where} ORDER BY parent DESC, name DESC"
        rows = self._connection.execute(query, arguments)
        return [(parent, name, valued == 1) for parent, name, valued in rows]

    def remove_below(self, path: str) -> None:
        where, arguments = self._where_below(path)
        self._connection.execute(f"DELETE FROM node {where}", arguments)

    def next_sequence(self, parent: str) -> int:
        number: int = self._connection.execute(
            "INSERT INTO sequence VALUES (?, 1) ON CONFLICT DO UPDATE SET next = next + 1 RETURNING next - 1",
            (parent,),
        ).fetchall()[0][0]
        return number

    def ephemerals(self) -> list[tuple[str, str]]:
        query = "SELECT parent, name FROM node WHERE ephemeral = 1 ORDER BY parent, name"
        return self._connection.execute(query).fetchall()

    def next_session(self) -> int:
        """Counts up the number of sessions and returns the new one."""
        query = "UPDATE session SET number = number + 1 RETURNING number"
        number: int = self._connection.execute(query).fetchall()[0][0]
        return number

    @staticmethod
    def _where_below(path: str) -> tuple[str, dict[str, str]]:
        return ("", {}) if path == paths.ROOT else (f"WHERE {_BELOW}", {"path": path})
