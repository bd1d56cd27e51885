"""Makes a new metadata file from the undamaged rows of a damaged one, when there is no backup.

A row with one flipped bit is corrected: no two single bits give the same CRC-32. Other damaged rows are left
out and named. The new file is marked as older than its messages (`bookie/belonging.py`), so nothing is
deleted because the file does not name it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from magnetar.metadata import paths
from magnetar.metadata.keys import GENERATION
from magnetar.metadata.sqlite_schema import create_tables, row_checksum, sequence_checksum

_ROWS: Final = (
    "SELECT parent, name, data, version, created_ms, modified_ms, ephemeral, session, checksum FROM node"
)
_REPAIRED_BYTES_MAX: Final = 16 << 10
"""Bytes of the longest row that is corrected; trying each bit of a longer one would take too long."""


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild."""

    kept: int = 0
    repaired: list[str] = field(default_factory=list)
    """Paths of corrected rows, which had one flipped bit."""
    lost: list[str] = field(default_factory=list)
    """Paths of the lost rows, as far as they are known."""


@dataclass(frozen=True, slots=True)
class _Row:
    parent: bytes
    name: bytes
    data: bytes | None
    numbers: tuple[int, ...]

    @property
    def checksum(self) -> int:
        return row_checksum(self.parent, self.name, self.data, self.numbers)

    @property
    def path(self) -> str:
        return f"{self.parent.decode(errors='replace').rstrip('/')}/{self.name.decode(errors='replace')}"

    def flips(self) -> Iterator[_Row]:
        """Every row that differs from this one by one bit."""
        for flipped in _flips(self.name):
            yield _Row(self.parent, flipped, self.data, self.numbers)
        for flipped in _flips(self.parent):
            yield _Row(flipped, self.name, self.data, self.numbers)
        for index, number in enumerate(self.numbers):
            for bit in range(48):
                numbers = (*self.numbers[:index], number ^ 1 << bit, *self.numbers[index + 1 :])
                yield _Row(self.parent, self.name, self.data, numbers)
        for flipped in _flips(self.data or b""):
            yield _Row(self.parent, self.name, flipped, self.numbers)


def _flips(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for bit in range(8):
            yield b"%b%c%b" % (data[:at], data[at] ^ 1 << bit, data[at + 1 :])


def rebuild(damaged: Path, fresh: Path) -> Rebuilt:
    """Reads `damaged`, which must not be in use, and creates `fresh`, which must not exist. Raises
    sqlite3.Error."""
    done = Rebuilt()
    source = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    source.text_factory = bytes
    target = sqlite3.connect(fresh, isolation_level=None)
    try:
        create_tables(target)
        target.execute("BEGIN")
        rows = {(row.parent, row.name): row for row in _nodes(source, done)}
        _older(rows)
        for row in _with_ancestors(rows).values():
            columns = (row.parent.decode(), row.name.decode(), row.data, *row.numbers, row.checksum)
            target.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", columns)
        for parent, number in _counters(source, done):
            checksum = sequence_checksum(parent, number)
            target.execute("INSERT INTO sequence VALUES (?, ?, ?)", (parent.decode(), number, checksum))
        target.execute("COMMIT")
    finally:
        source.close()
        target.close()
    return done


def _nodes(source: sqlite3.Connection, done: Rebuilt) -> Iterator[_Row]:
    for parent, name, data, *numbers, checksum in _readable(source, _ROWS, done):
        row = _whole(parent, name, data, numbers, checksum)
        if row is None:
            done.lost.append(f"{parent!r} {name!r}")
            continue
        read = (parent, name, data, tuple(numbers))
        if row.checksum != checksum or (row.parent, row.name, row.data, row.numbers) != read:
            done.repaired.append(row.path)
        done.kept += 1
        yield row


def _whole(
    parent: object, name: object, data: object, numbers: Sequence[object], checksum: object
) -> _Row | None:
    """The row, corrected when one bit was flipped; None when more bits are wrong."""
    if not isinstance(parent, bytes) or not isinstance(name, bytes) or not isinstance(data, bytes | None):
        return None
    whole = tuple(number for number in numbers if isinstance(number, int))
    if len(whole) != len(numbers) or not isinstance(checksum, int):
        return None
    row = _Row(parent, name, data, whole)
    found = row.checksum
    if found == checksum or (found ^ checksum).bit_count() == 1:
        # The row or only its checksum is damaged.
        return row
    if len(parent) + len(name) + len(data or b"") > _REPAIRED_BYTES_MAX:
        return None
    candidates = (each for each in row.flips() if each.checksum == checksum)
    return next((each for each in candidates if _is_path(each)), None)


def _is_path(row: _Row) -> bool:
    try:
        paths.split(paths.join(row.parent.decode(), row.name.decode()))
    except (UnicodeDecodeError, paths.InvalidPathError):
        return False
    return all(number >= 0 for number in row.numbers)


def _older(rows: dict[tuple[bytes, bytes], _Row]) -> None:
    """Marks the file as older than its messages: objects that it does not name may still be needed."""
    parent, _, name = GENERATION.encode().rpartition(b"/")
    row = rows.get((parent, name))
    if row is not None and row.data is not None and row.data.isdigit():
        rows[parent, name] = _Row(parent, name, str(max(int(row.data) - 1, 0)).encode(), row.numbers)


def _with_ancestors(rows: dict[tuple[bytes, bytes], _Row]) -> dict[tuple[bytes, bytes], _Row]:
    """The rows, with the nodes that exist only for their children added."""
    every = dict(rows)
    for row in rows.values():
        path = row.parent.decode()
        while path != paths.ROOT:
            parent, name = (part.encode() for part in paths.split(path))
            every.setdefault((parent, name), _Row(parent, name, None, (0, 0, 0, 0, 0)))
            path = parent.decode()
    return every


def _counters(source: sqlite3.Connection, done: Rebuilt) -> Iterator[tuple[bytes, int]]:
    for parent, number, checksum in _readable(source, "SELECT parent, next, checksum FROM sequence", done):
        if (
            isinstance(parent, bytes)
            and isinstance(number, int)
            and crc32(b"%b\n%d" % (parent, number)) == checksum
        ):
            done.kept += 1
            yield parent, number
        else:
            done.lost.append(f"counter of {parent!r}")


def _readable(source: sqlite3.Connection, query: str, done: Rebuilt) -> Iterator[tuple[object, ...]]:
    try:
        yield from source.execute(query)
    except sqlite3.DatabaseError as error:
        done.lost.append(f"what lies behind: {error}")
