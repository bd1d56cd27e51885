"""The state of one function: a SQLite file that all its instances and the worker open. Driver.

    state      key text | value blob | version | expires_ms (0: never)
    positions  topic text | last_index: the highest message index of the topic whose changes are in `state`

A commit is one transaction of the changes and the positions, and is on disk when `commit` returns. Several
instances may commit at the same time: additions to one counter do not get lost.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from magnetar.base.closing import Closing
from magnetar.functions.errors import StateFileError
from magnetar.functions.ports import StateValue
from magnetar.functions.state.state_change import StateChange, counter_of

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value BLOB NOT NULL,
    version INTEGER NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS positions (topic TEXT PRIMARY KEY,
    last_index INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS ends ON state (expires_ms) WHERE expires_ms > 0",
)
_BUSY_S: Final = 10.0
"""Seconds to wait while another instance commits."""


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class StateFile(Closing):
    """An open file of state. One thread at a time."""

    def __init__(self, path: Path, now_ms: Callable[[], int] = _system_ms, *, durable: bool = True) -> None:
        """Opens or creates the file. `now_ms`: Unix milliseconds, by which values end. `durable`: False for a
        file that need not outlive the process. Raises StateFileError."""
        self._path = path
        self._now_ms = now_ms
        with self._told("opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # On disk at each commit: acknowledgements follow it, and those are on disk too.
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            for statement in _SCHEMA:
                self._db.execute(statement)

    def close(self) -> None:
        self._db.close()

    def get(self, key: str) -> StateValue | None:
        """The value of a key; None when there is none, or its time is over. Raises StateFileError."""
        with self._told("read"):
            row = self._db.execute(
                "SELECT value, version, expires_ms FROM state WHERE key = ?", (key,)
            ).fetchone()
        if row is None or 0 < row[2] <= self._now_ms():
            return None
        return StateValue(row[0], counter_of(row[0]), row[1])

    def keys(self, prefix: str = "", *, count_max: int = 1000) -> list[str]:
        """Keys that begin with `prefix`, ascending, at most `count_max`. Raises StateFileError."""
        with self._told("read"):
            rows = self._db.execute(
                "SELECT key FROM state WHERE key >= ? AND substr(key, 1, ?) = ?"
                " AND (expires_ms = 0 OR expires_ms > ?) ORDER BY key LIMIT ?",
                (prefix, len(prefix), prefix, self._now_ms(), count_max),
            ).fetchall()
        return [row[0] for row in rows]

    def position(self, topic: str) -> int:
        """The highest index of the topic's messages whose changes are stored; -1: none. Raises
        StateFileError."""
        with self._told("read"):
            row = self._db.execute("SELECT last_index FROM positions WHERE topic = ?", (topic,)).fetchone()
        return -1 if row is None else int(row[0])

    def commit(self, changes: Mapping[str, StateChange], positions: Mapping[str, int] | None = None) -> None:
        """Stores changes and positions together, or none of them. Raises StateFileError."""
        now_ms = self._now_ms()
        with self._told("written"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for key, change in changes.items():
                    self._apply(key, change, now_ms)
                for topic, last_index in (positions or {}).items():
                    self._db.execute(
                        "INSERT INTO positions VALUES (?, ?)"
                        " ON CONFLICT DO UPDATE SET last_index = excluded.last_index",
                        (topic, last_index),
                    )
                self._db.execute("DELETE FROM state WHERE expires_ms > 0 AND expires_ms <= ?", (now_ms,))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _apply(self, key: str, change: StateChange, now_ms: int) -> None:
        row = self._db.execute(
            "SELECT value, version, expires_ms FROM state WHERE key = ?", (key,)
        ).fetchone()
        if row is not None and 0 < row[2] <= now_ms:
            row = (None, row[1], 0)
        value = change.applied_to(None if row is None else row[0])
        if value is None:
            self._db.execute("DELETE FROM state WHERE key = ?", (key,))
            return
        expires_ms = change.expires_ms if change.replaces or row is None else row[2]
        self._db.execute(
            "INSERT INTO state VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value,"
            " version = excluded.version, expires_ms = excluded.expires_ms",
            (key, value, 0 if row is None else row[1] + 1, expires_ms),
        )

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StateFileError(
                f"the state in {self._path} cannot be {done}: {error}; is the disk full, or the file damaged?"
            ) from error


def take_over(old: Path, new: Path) -> None:
    """What an earlier version kept at `old` is at `new` afterwards, whole: a crash in between leaves it where
    it was. Raises StateFileError."""
    if new.exists() or not old.exists():
        return
    # Opened and closed once, the file holds all that its log held.
    StateFile(old).close()
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        old.replace(new)
    except OSError as error:
        raise StateFileError(f"the state {old} cannot be moved to {new}: {error.strerror}") from error


def remove_state(path: Path) -> None:
    """Removes the file of a state that is open nowhere, if there is one, with its folder. Raises
    StateFileError."""
    try:
        # The log first: alone, it would be taken for that of a new file.
        for each in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"), path):
            each.unlink(missing_ok=True)
        if path.parent.is_dir():
            # What the code has left there goes too.
            shutil.rmtree(path.parent)
    except OSError as error:
        raise StateFileError(f"the state {path} cannot be removed: {error.strerror}") from error
