"""The backend that stores the tree in one SQLite file on this machine.

Theory of operation. Two connections, in write-ahead mode, so that readers never wait:

    reads    on the event loop, inline: a few microseconds from SQLite's page cache
    writes   wait in a queue. A group of them is applied on the event loop inside one open
             transaction, and only its COMMIT, which is where the device is waited for, runs on the
             writer thread. Whatever arrives meanwhile forms the next group.

The thread makes one call per group: each return into Python must win the interpreter lock from a busy loop,
and would at every statement (figures: docs/decisions/0003-embedded-metadata-store.md).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.errors import DiskFullError, StorageError, StorageFailedError
from magnetar.metadata import paths
from magnetar.metadata.recent_nodes import RecentNodes
from magnetar.metadata.reserve import Reserve
from magnetar.metadata.sqlite_file import check_file, check_format, connect, empty_log, leave, translated
from magnetar.metadata.sqlite_nodes import SqliteNodes, all_children
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    Change,
    Notification,
    Operation,
    SessionEvent,
    Stat,
    Value,
    check_count,
)
from magnetar.metadata.tree import Tree
from magnetar.metadata.watched_store import WatchedStore
from magnetar.runtime.durable_file import settle_folder, sync_folder
from magnetar.runtime.file_lock import FileLock
from magnetar.runtime.threads import OneThread, in_thread

_log = logging.getLogger("magnetar.metadata")
_T = TypeVar("_T")

GROUP_MAX: Final = 256
"""Most writes in one transaction. Applying a write holds the event loop for about 15 µs."""

GATHER_FROM: Final = 8
"""Writes of a group after which the next one gathers: many callers write at once."""
GATHER_TURNS: Final = 4
"""Turns of the event loop for which it does. Meanwhile the answers lead to the next requests, and their
writes share a commit: a hand-over to the thread, and a sync."""


@dataclass(slots=True)
class _Write:
    """One write call that waits for a group."""

    operation: Callable[[list[Notification]], object]
    future: asyncio.Future[Any]
    many: bool
    """Whether the write may fail after a first change: it then gets its own savepoint."""
    result: object = None
    error: Exception | None = None
    told: list[Notification] = field(default_factory=list)


class EmbeddedMetadataStore(WatchedStore):
    """A `MetadataStore` in one file, for one process at a time. Made by `open`."""

    def __init__(
        self,
        file: Path,
        lock: FileLock,
        reader: sqlite3.Connection,
        writer: sqlite3.Connection,
        clock: Clock,
        on_fatal: Callable[[StorageError], None] | None,
        reserve: Reserve,
    ) -> None:
        """Use `open`."""
        super().__init__()
        self._file = file
        self._lock = lock
        self._on_fatal = on_fatal
        self._reserve = reserve
        self._reader = reader
        self._writer = writer
        self._read_nodes = SqliteNodes(reader, str(file))
        self._write_nodes = RecentNodes(SqliteNodes(writer, str(file)))
        self._session = self._begin_session(clock)
        self._tree = Tree(self._write_nodes, clock, self._session)
        self._thread = OneThread("metadata-writer")
        self._waiting: deque[_Write] = deque()
        self._busy = False
        self._alone = 0
        """Number of writes at the head of the queue that are tried one by one, because their group failed."""
        self._failure: StorageFailedError | None = None
        self._session_watchers: list[Callable[[SessionEvent], None]] = []

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        clock: Clock,
        durable: bool = True,
        on_fatal: Callable[[StorageError], None] | None = None,
        reserve_bytes: int = 0,
    ) -> EmbeddedMetadataStore:
        """Opens the file at `path`, made with its folder where absent, and removes the ephemeral
        values of earlier sessions.

        `on_fatal` is called once, on the event loop, when a commit has failed for another reason than a
        full disk: no write is taken after that, and what can be read may not be on the device.
        `reserve_bytes` are kept on the disk for writes that find it full (reserve.py); 0 keeps none.
        `durable=False` leaves writing to the kernel: a crash of the machine loses the last writes.
        Raises StartupError when the file is in use, of a newer format or none of ours, DiskFullError,
        CorruptDataError, StorageFailedError. Blocks for some milliseconds.
        """
        file = Path(path)
        connections: list[sqlite3.Connection] = []
        lock: FileLock | None = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            reserve = Reserve(file.with_name(f"{file.name}.reserve"), reserve_bytes)
            if not reserve.refill():
                # SQLite makes and enlarges files to open its own.
                reserve.give_up(for_new=False)
            lock = FileLock(file.with_name(f"{file.name}.lock"), f"the metadata in {file.parent}")
            connections.append(connect(file, durable=durable, first=True))
            if check_format(connections[0], file) and durable:
                settle_folder(file.parent)
            if durable:
                sync_folder(file.parent)
            empty_log(connections[0], file)
            connections.append(connect(file, durable=durable))
            return cls(file, lock, connections[1], connections[0], clock, on_fatal, reserve)
        except BaseException as error:
            leave(connections, file)
            if lock is not None:
                lock.release()
            if isinstance(error, sqlite3.Error | OSError):
                raise translated(error, file) from error
            raise

    async def get(self, path: str) -> Value | None:
        """Runs inline and reads the page cache only, so it never suspends."""
        self._check_open()
        parent, name = paths.split(path)
        try:
            node = self._read_nodes.get(parent, name)
        except sqlite3.Error as error:
            raise translated(error, self._file) from error
        return None if node is None else node.value(path, self._session)

    async def children(self, path: str) -> list[str]:
        """Runs inline, 0.4 µs for each child; more than LISTED_MAX in several turns of the loop."""
        paths.check(path)
        try:
            return await all_children(self._read_nodes, path, self._check_open)
        except sqlite3.Error as error:
            raise translated(error, self._file) from error

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """See `MetadataStore.put`. After a cancellation any write here may or may not have taken effect."""
        kinds = {"ephemeral": ephemeral, "sequential": sequential}
        return await self._write(
            lambda told: self._tree.put(told, path, data, expected_version, **kinds), many=sequential
        )

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        await self._write(lambda told: self._tree.delete(told, path, expected_version, expected_creation))

    async def delete_recursive(self, path: str) -> None:
        await self._write(lambda told: self._tree.delete_recursive(told, path))

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_count(fixed := tuple(operations))
        return await self._write(lambda told: self._tree.transact(told, fixed), many=True)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """The session lasts as long as the store: it is lost when that fails."""
        self._session_watchers.append(callback)
        return lambda: self._session_watchers.remove(callback)

    async def sync(self) -> None:
        """Does nothing: there is one writer, so every read sees the newest value."""
        self._check_open()

    async def check(self) -> None:
        """Checks every row, in a thread, while writes continue. Raises CorruptDataError, StorageError."""
        self._check_open()
        await in_thread(check_file, self._file)

    async def close(self) -> None:
        """Waits for the writes that were called before, then closes the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._failure is None:
                await self._enqueue(self._tree.end_sessions)
        except StorageError:
            # On a full disk the ephemeral values stay in the file; the next open removes them.
            pass
        finally:
            self._watches.clear()
            # The last connection to close copies the write-ahead log into the file: a device's time.
            await self._thread.run(self._close_files)
            self._thread.close()

    # -- writing -------------------------------------------------------------------------------

    async def _write(self, operation: Callable[[list[Notification]], _T], *, many: bool = False) -> _T:
        self._check_open()
        return await self._enqueue(operation, many=many)

    def _enqueue(
        self, operation: Callable[[list[Notification]], _T], *, many: bool = False
    ) -> asyncio.Future[_T]:
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._waiting.append(_Write(operation, future, many))
        if not self._busy:
            self._busy = True
            # On the next turn, so that everything called in this one shares the transaction.
            loop.call_soon(self._next_group)
        return future

    def _next_group(self) -> None:
        """Applies the next group and hands its COMMIT to the thread, or finds the queue empty."""
        while self._waiting:
            group = self._take_group()
            try:
                changed = self._apply(group)
            except (sqlite3.Error, StorageError) as error:
                self._group_failed(group, error)
                continue
            if changed:
                commit = self._thread.run(self._writer.execute, "COMMIT")
                commit.add_done_callback(partial(self._committed, group))
                return
            self._writer.execute("ROLLBACK")
            self._finish(group)
        self._busy = False

    def _take_group(self) -> list[_Write]:
        if self._alone:
            self._alone -= 1
            return [self._waiting.popleft()]
        return [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]

    def _apply(self, group: list[_Write]) -> bool:
        """Runs the operations in a transaction and leaves it open; returns whether anything changed."""
        execute = self._writer.execute
        before = self._writer.total_changes
        execute("BEGIN IMMEDIATE")
        for write in group:
            write.told = []
            write.error = None
            if write.many:
                execute("SAVEPOINT write")
            try:
                write.result = write.operation(write.told)
            except (sqlite3.Error, StorageError):
                raise
            except Exception as error:  # noqa: BLE001 - belongs to the caller of this write alone
                write.error = error.with_traceback(None)  # which leads to this frame, and so to itself
                if write.many:
                    execute("ROLLBACK TO write")
                    self._write_nodes.undone()
            if write.many:
                execute("RELEASE write")
        return self._writer.total_changes != before

    def _committed(self, group: list[_Write], done: asyncio.Future[object]) -> None:
        error = done.exception()
        if error is None:
            self._finish(group)
            if not self._reserve.is_whole:
                self._refill()
        elif isinstance(error, sqlite3.Error):
            self._group_failed(group, error)
        else:
            # Whether it was committed is not known. Without an answer its callers would wait for ever.
            failure = StorageFailedError(f"metadata in {self._file.parent}: a commit ended with {error!r}")
            failure.__cause__ = error
            self._fail(failure, group)
        self._gather(GATHER_TURNS if error is None and len(group) >= GATHER_FROM else 0)

    def _gather(self, turns: int) -> None:
        """Begins the next group after so many turns of the loop."""
        if turns:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1)
        else:
            self._next_group()

    def _finish(self, group: list[_Write], refusal: StorageError | None = None) -> None:
        """Tells the watchers first, then the callers, in the order of the calls. `refusal` fails them all."""
        for write in group:
            write.error = refusal or write.error
            if write.error is None:
                self._watches.announce(write.told)
            if write.future.done():
                continue
            if write.error is None:
                write.future.set_result(write.result)
            else:
                write.future.set_exception(write.error)

    def _group_failed(self, group: list[_Write], cause: sqlite3.Error | StorageError) -> None:
        """No write of the group was kept: tries each write alone, or fails the only one."""
        error = translated(cause, self._file) if isinstance(cause, sqlite3.Error) else cause
        self._write_nodes.undone()
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as second:
            error = StorageFailedError(f"metadata in {self._file.parent}: {error}; then {second}")
        if isinstance(error, StorageFailedError):
            self._fail(error, group)
        elif len(group) > 1 or (isinstance(error, DiskFullError) and self._found_room(group[0])):
            self._waiting.extendleft(reversed(group))
            # The others that failed with it are alone still.
            self._alone += len(group)
        else:
            self._finish(group, error)

    def _found_room(self, write: _Write) -> bool:
        """Frees a piece of the reserve for a write that did not fit; returns whether to try it again."""
        is_new = any(each.change is Change.CREATED for each in write.told)
        try:
            if not self._reserve.give_up(for_new=is_new):
                return False
            # A log that was copied into the file is written over from its beginning, and needs no more space.
            self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        except (sqlite3.Error, OSError) as error:
            # Space was given up all the same, so the write is worth another try.
            _log.warning("%s", translated(error, self._file))
        return True

    def _refill(self) -> None:
        """Fills the reserve again after a write that found space."""
        try:
            self._reserve.refill()
        except OSError as error:
            # The next write that finds space tries again; until then the reserve is smaller.
            _log.warning("the disk reserve could not be created again: %s", translated(error, self._file))

    def _fail(self, failure: StorageFailedError, group: list[_Write]) -> None:
        """Refuses all waiting writes and stops. The kernel may have dropped the pages that it could not
        write, so the content of the file is unknown, and a later successful sync would prove nothing."""
        _log.critical("the metadata store stops: %s", failure)
        self._failure = failure
        group = [*group, *self._waiting]
        self._waiting.clear()
        self._alone = 0
        call_soon = asyncio.get_running_loop().call_soon
        if self._on_fatal is not None:
            call_soon(self._on_fatal, failure)
        for callback in self._session_watchers:
            call_soon(callback, SessionEvent.SESSION_LOST)
        self._finish(group, failure)

    def _begin_session(self, clock: Clock) -> int:
        self._writer.execute("BEGIN IMMEDIATE")
        session = SqliteNodes(self._writer, str(self._file)).next_session()
        Tree(self._write_nodes, clock, session).end_sessions([])
        self._writer.execute("COMMIT")
        return session

    def _close_files(self) -> None:
        try:
            self._reader.close()
            self._writer.close()
        finally:
            self._lock.release()
