"""Bookies of one machine that meet in a folder, for a cluster whose ledgers one broker's file names.

    FOLDER/instance           id of the cluster
    FOLDER/cookies/ID         the cookie
    FOLDER/alive/ID           JSON: host, port, read_only, pid, as the bookie last wrote them
    FOLDER/alive/ID.lock      locked (flock) by the process that serves as ID
    FOLDER/doubt              why ledgers that the broker's file does not name must be kept; usually absent

The kernel releases a lock when its process ends for any reason, so a killed bookie is known as dead at once;
no session has to time out. Ledgers are looked up in the SQLite file of the broker's metadata, read only.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, TypedDict

from magnetar.base.errors import MetadataError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cookies import decode_cookie, encode_cookie
from magnetar.metadata.bookkeeper.registry import (
    BookieIdInUseError,
    ClusterNotInitializedError,
    Cookie,
    LiveBookies,
    RegisteredBookie,
    check_bookie_id,
)
from magnetar.metadata.keys import GENERATION
from magnetar.metadata.sqlite_file import check_file
from magnetar.metadata.store import BadVersionError, NotFoundError
from magnetar.runtime.durable_file import sync_folder, write_durably
from magnetar.runtime.tasks import call_later
from magnetar.runtime.threads import in_thread

_LOCK_SUFFIX: Final = ".lock"
_LOOK_S: Final = 0.5
"""Seconds between two checks for live bookies, while a watcher exists."""
_LEDGERS_BELOW: Final = (
    "SELECT parent, name FROM node WHERE data IS NOT NULL AND (parent = ?1 OR (parent > ?1 || '/' AND "
    "parent < ?1 || '0'))"
)
_NODE: Final = "SELECT 1 FROM node WHERE parent = ? AND name = ? AND data IS NOT NULL"

_VALUE: Final = "SELECT data FROM node WHERE parent = ? AND name = ? AND data IS NOT NULL"


class _Record(TypedDict):
    """The file of a live bookie, as its process wrote it."""

    host: str
    port: int
    read_only: bool
    pid: int


class FolderBookieRegistry:
    """A `BookieRegistry` of bookies on this machine. Its calls take a few file operations each."""

    def __init__(self, folder: Path, metadata_file: Path, tree: BookKeeperTree) -> None:
        """`metadata_file`: the broker's metadata, which holds `tree`. Make the folder with `initialize`."""
        self._folder = folder
        self._alive = folder / "alive"
        self._cookies = folder / "cookies"
        self._metadata_file = metadata_file
        self._tree = tree
        self._locks: dict[str, int] = {}

    def initialize(self, instance_id: str) -> None:
        """Makes the folder when it is missing. Raises OSError; MetadataError when it is another cluster's."""
        file = self._folder / "instance"
        self._alive.mkdir(parents=True, exist_ok=True)
        self._cookies.mkdir(exist_ok=True)
        if not file.exists():
            write_durably(file, instance_id.encode(), part=self._part("instance"))
        elif (found := file.read_text()) != instance_id:
            raise MetadataError(
                f"{self._folder} belongs to the bookies of cluster {found}, not of {instance_id}: "
                "was the metadata restored from elsewhere?"
            )

    def _part(self, name: str) -> Path:
        """The temporary name of a file, before it is renamed into its folder; no listing shows it."""
        return self._folder / f"{name}.part"

    async def instance_id(self) -> str:
        try:
            return (self._folder / "instance").read_text()
        except OSError as error:
            raise ClusterNotInitializedError(f"{self._folder}: no cluster was initialized here") from error

    # -- registrations -----------------------------------------------------------------------------

    async def register(self, bookie: RegisteredBookie, *, read_only: bool = False) -> None:
        check_bookie_id(bookie.bookie_id)
        address = bookie.address()
        if address is None:
            raise MetadataError(f"bookie {bookie.bookie_id} has no address")
        self._lock(bookie.bookie_id)
        told: _Record = {"host": address[0], "port": address[1], "read_only": read_only, "pid": os.getpid()}
        part = self._part(bookie.bookie_id)
        # Not synced: after a power cut no bookie is registered.
        part.write_text(json.dumps(told))
        part.replace(self._alive / bookie.bookie_id)

    def _lock(self, bookie_id: str) -> None:
        if bookie_id in self._locks:
            return
        file = self._alive / f"{bookie_id}{_LOCK_SUFFIX}"
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # Or another process checks just now: the registration tries again.
            os.close(lock)
            raise BookieIdInUseError(bookie_id) from error
        # What the last process said of itself is not true of this one.
        (self._alive / bookie_id).unlink(missing_ok=True)
        self._locks[bookie_id] = lock

    async def unregister(self, bookie_id: str) -> None:
        lock = self._locks.pop(bookie_id, None)
        if lock is not None:
            (self._alive / bookie_id).unlink(missing_ok=True)
            os.close(lock)

    def _told(self, bookie_id: str) -> _Record | None:
        """The record of a live bookie; None when it is not alive. Raises MetadataError."""
        try:
            told: _Record = json.loads((self._alive / bookie_id).read_bytes())
        except (FileNotFoundError, ValueError):
            # Not JSON: a power cut left it, as the files are not synced; the next registration removes it.
            return None
        except OSError as error:
            raise MetadataError(f"{self._alive / bookie_id} cannot be read: {error}") from error
        return told if bookie_id in self._locks or self._is_locked(bookie_id) else None

    def _is_locked(self, bookie_id: str) -> bool:
        try:
            lock = os.open(self._alive / f"{bookie_id}{_LOCK_SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    async def bookies(self) -> LiveBookies:
        try:
            names = [name for name in os.listdir(self._alive) if not name.endswith(_LOCK_SUFFIX)]
        except OSError as error:
            raise MetadataError(f"{self._alive} cannot be listed: {error}") from error
        told = [(name, said) for name in names if (said := self._told(name)) is not None]
        return LiveBookies(
            frozenset(name for name, said in told if not said["read_only"]),
            frozenset(name for name, said in told if said["read_only"]),
        )

    def watch_bookies(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Polls the folder, and calls back each time: there is no event for a process that died."""
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            timer = call_later(_LOOK_S, look)
            changed()

        timer = call_later(_LOOK_S, look)
        return lambda: timer.cancel()

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        told = self._told(bookie_id)
        return None if told is None else RegisteredBookie.at(bookie_id, told["host"], told["port"])

    # -- cookies -----------------------------------------------------------------------------------

    async def cookie(self, bookie_id: str) -> tuple[Cookie, int] | None:
        file = self._cookies / bookie_id
        try:
            return decode_cookie(file.read_bytes()), 0
        except FileNotFoundError:
            return None

    async def put_cookie(self, cookie: Cookie, *, expected_version: int) -> int:
        """Creates the cookie. A cookie here never changes: raises BadVersionError when one exists."""
        check_bookie_id(cookie.bookie_id)
        file = self._cookies / cookie.bookie_id
        if expected_version >= 0 or file.exists():
            raise BadVersionError(str(file), expected_version, 0 if file.exists() else None)
        write_durably(file, encode_cookie(cookie), part=self._part(cookie.bookie_id))
        return 0

    async def delete_cookie(self, bookie_id: str, *, expected_version: int) -> None:
        file = self._cookies / bookie_id
        try:
            file.unlink()
        except FileNotFoundError as error:
            raise NotFoundError(str(file)) from error
        sync_folder(self._cookies)

    async def generation(self, bookie_id: str) -> int | None:
        """The generation in the broker's file; the broker raises it when it starts and while it runs."""
        if not (self._cookies / bookie_id).exists():
            return None
        parent, _, name = GENERATION.rpartition("/")
        rows = await in_thread(self._query, _VALUE, (parent, name))
        return int(rows[0][0]) if rows else 0

    async def raise_generation(self, bookie_id: str, seen: int) -> int:
        return await self.generation(bookie_id) or 0

    def connection_id(self) -> int:
        """Identity of the broker's file: a file that replaces it has another number."""
        try:
            return self._metadata_file.stat().st_ino
        except OSError as error:
            raise MetadataError(f"{self._metadata_file} cannot be read: {error}") from error

    def doubt(self) -> str:
        try:
            return (self._folder / "doubt").read_text()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise MetadataError(f"{self._folder / 'doubt'} cannot be read: {error}") from error

    def doubted(self, doubt: str) -> None:
        """Sets the text that `doubt` returns; the broker calls this. Durable on return. Raises OSError."""
        file = self._folder / "doubt"
        if doubt:
            write_durably(file, doubt.encode(), part=self._part("doubt"))
        elif file.exists():
            file.unlink()
            sync_folder(self._folder)

    async def known_bookies(self) -> frozenset[str]:
        return frozenset(os.listdir(self._cookies))

    # -- ledgers -----------------------------------------------------------------------------------

    async def ledger_exists(self, ledger_id: LedgerId) -> bool:
        parent, _, name = self._tree.ledger(ledger_id).rpartition("/")
        return bool(await in_thread(self._query, _NODE, (parent, name)))

    async def ledger_ids(self) -> AsyncIterator[LedgerId]:
        # Callers delete ledgers that are not listed: one flipped bit in a key must not look like a deletion.
        try:
            await in_thread(check_file, self._metadata_file)
        except StorageError as error:
            raise MetadataError(f"the ledgers cannot be listed: {error}") from error
        for parent, name in await in_thread(self._query, _LEDGERS_BELOW, (self._tree.root,)):
            ledger_id = self._tree.ledger_id_of(f"{parent}/{name}")
            if ledger_id is not None:
                yield ledger_id

    def _query(self, query: str, arguments: tuple[str, ...]) -> list[Any]:
        """One statement sees one state of the file, also during concurrent writes."""
        try:
            connection = sqlite3.connect(f"{self._metadata_file.as_uri()}?mode=ro", uri=True)
            try:
                return connection.execute(query, arguments).fetchall()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise MetadataError(f"{self._metadata_file} cannot be read: {error}") from error
