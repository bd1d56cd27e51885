"""The table of nodes in an SQLite file.

    node       parent TEXT, name TEXT       key; the path is parent/name
               data BLOB                    NULL for a node that exists only for its children
               version, created_ms, modified_ms, ephemeral (0|1), session   INTEGER
               checksum INTEGER             CRC-32 of all of the above
    sequence   parent TEXT, next INTEGER    counters of sequential puts
               checksum INTEGER             CRC-32 of both
    session    number INTEGER               one row: how often the file was opened
    total      count INTEGER                one row: the number of rows in node and sequence together,
               checksums INTEGER            and the sum of their checksums; triggers update both

SQLite checks frames of its write-ahead log, not pages of the file. So each row has its own checksum, and a
damaged value is reported, never served. A row whose *key* is damaged is no longer found under its path, and a
row in a damaged index page may not be found at all: the totals show that it is missing (sqlite_check.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.metadata import paths
from magnetar.metadata.sqlite_schema import row_checksum, sequence_checksum
from magnetar.metadata.tree import Node
from magnetar.runtime.tasks import yield_loop

LISTED_MAX: Final = 5_000
"""Most names that one turn of the event loop lists: two milliseconds."""

_GET: Final = (
    "SELECT data, version, created_ms, modified_ms, ephemeral, session, checksum "
    "FROM node WHERE parent = ? AND name = ?"
)
_STORE: Final = (
    # No REPLACE: it would delete the old row without telling the trigger that keeps the totals.
    "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data, "
    "version = excluded.version, created_ms = excluded.created_ms, modified_ms = excluded.modified_ms, "
    "ephemeral = excluded.ephemeral, session = excluded.session, checksum = excluded.checksum"
)
_BELOW: Final = "parent = :path OR (parent > :path || '/' AND parent < :path || '0')"


def _checksum(parent: str, name: str, node: Node | None) -> int:
    if node is None:
        return row_checksum(parent.encode(), name.encode(), None)
    numbers = (node.version, node.created_ms, node.modified_ms, int(node.ephemeral), node.session)
    return row_checksum(parent.encode(), name.encode(), node.data, numbers)


class SqliteNodes:
    """A `NodeTable` on one connection; the caller begins and commits. Methods raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        """`file`: the path that errors name."""
        self._connection = connection
        self._file = file

    def get(self, parent: str, name: str) -> Node | None:
        row = self._connection.execute(_GET, (parent, name)).fetchone()
        if row is None:
            return None
        data, version, created_ms, modified_ms, ephemeral, session, checksum = row
        node = None
        if data is not None:
            node = Node(data, version, created_ms, modified_ms, ephemeral == 1, session)
        if not isinstance(data, bytes | None) or _checksum(parent, name, node) != checksum:
            path = paths.join(parent, name)
            raise CorruptDataError(self._file, 0, f"the value of {path} fails its checksum")
        return node

    def listed(self, parent: str, name: str) -> bool:
        query = "SELECT 1 FROM node WHERE parent = ? AND name = ?"
        return self._connection.execute(query, (parent, name)).fetchone() is not None

    def has_children(self, path: str) -> bool:
        query = "SELECT 1 FROM node WHERE parent = ? LIMIT 1"
        return self._connection.execute(query, (path,)).fetchone() is not None

    def children(self, path: str, after: str = "", most: int = -1) -> list[str]:
        """At most so many names of children behind the name `after`, sorted; -1: all."""
        query = "SELECT name FROM node WHERE parent = ? AND name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._connection.execute(query, (path, after, most))]

    def store(self, parent: str, name: str, node: Node | None) -> None:
        columns = (
            (None, 0, 0, 0, 0, 0)
            if node is None
            else (node.data, node.version, node.created_ms, node.modified_ms, node.ephemeral, node.session)
        )
        self._connection.execute(
            _STORE,
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
        execute = self._connection.execute
        found = execute("SELECT next, checksum FROM sequence WHERE parent = ?", (parent,)).fetchone()
        number = 0
        if found is not None:
            number, checksum = found
            if sequence_checksum(parent.encode(), number) != checksum:
                raise CorruptDataError(self._file, 0, f"the counter of {parent} fails its checksum")
        execute(
            "INSERT INTO sequence VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next, "
            "checksum = excluded.checksum",
            (parent, number + 1, sequence_checksum(parent.encode(), number + 1)),
        )
        return number

    def ephemerals(self) -> list[tuple[str, str]]:
        query = "SELECT parent, name FROM node WHERE ephemeral = 1 ORDER BY parent, name"
        return self._connection.execute(query).fetchall()

    def next_session(self) -> int:
        """Adds 1 to the number of sessions and returns it."""
        query = "UPDATE session SET number = number + 1 RETURNING number"
        number: int = self._connection.execute(query).fetchall()[0][0]
        return number

    @staticmethod
    def _where_below(path: str) -> tuple[str, dict[str, str]]:
        return ("", {}) if path == paths.ROOT else (f"WHERE {_BELOW}", {"path": path})


async def all_children(nodes: SqliteNodes, path: str, check_open: Callable[[], None]) -> list[str]:
    """Names of all children, sorted.

    More than LISTED_MAX are read in several turns of the loop: those that are made or removed meanwhile are
    listed or not. `check_open` raises when the table was closed.
    """
    names: list[str] = []
    while True:
        check_open()
        piece = nodes.children(path, names[-1] if names else "", LISTED_MAX)
        names += piece
        if len(piece) < LISTED_MAX:
            return names
        await yield_loop()
