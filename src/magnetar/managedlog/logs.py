"""The managed logs of a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.ledger.api import Copies, Ledgers
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_info
from magnetar.managedlog.cursors.cursor_flusher import CursorFlusher
from magnetar.managedlog.cursors.cursor_replay import ReplayProgress
from magnetar.managedlog.cursors.log_cursors import CursorWork
from magnetar.managedlog.errors import LogClosedError, LogExistsError, LogFencedError, LogNotFoundError
from magnetar.managedlog.holes import HolePolicy
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import ROOT, LogMetadata, decode, encode, log_path
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.offloading import delete_copy
from magnetar.managedlog.peeking import StoredSummary, peek, peek_sealed
from magnetar.managedlog.recovery import ReadSources, recover_log
from magnetar.managedlog.resources import LogResources
from magnetar.managedlog.tail_cache import CacheBudget
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    OPERATIONS_MAX,
    BadVersionError,
    Check,
    Delete,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Put,
)
from magnetar.runtime.tasks import begin, ended
from magnetar.tiered.api import SealedLedger, Tiers

_log = logging.getLogger("magnetar.managedlog")

_CLOSE_S: Final = 30.0
"""Seconds for the end of the ledgers of all logs at the end of the process."""


class ManagedLogs:
    """Opens logs, each once, over shared ledgers, one metadata store and one cache budget."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        ledgers: Ledgers,
        clock: Clock,
        config: ManagedLogConfig | None = None,
        spawn: Callable[[Coroutine[object, object, None]], None],
        tiers: Tiers | None = None,
        holes: HolePolicy | None = None,
    ) -> None:
        """`spawn` runs background work, and must outlive the logs. `tiers` holds the offloaded ledgers;
        `holes` decides which lost entries are skipped, by default none."""
        self.holes = holes or HolePolicy()
        self.config = config or ManagedLogConfig()
        self.cache_budget = CacheBudget(self.config.cache_bytes)
        self._store = store
        self.ledgers = ledgers
        self._clock = clock
        self._spawn = spawn
        self._tiers = tiers
        self._flusher = CursorFlusher(self.config.cursor_flush_ms)
        self.replays = ReplayProgress()
        """Cursors that are being read back after a crash, or were."""
        self._logs: dict[str, ManagedLog] = {}
        # Only as long as a caller holds or waits for them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = False

    async def open(self, name: str, copies: Copies | None = None) -> ManagedLog:
        """The log of that name, `tenant/namespace/persistent/<encoded topic>`; created when missing.

        All callers that open the same name get the same log, until it is closed, failed or fenced: then it is
        opened anew. `copies`: how many bookies hold its new ledgers; None: the process's default.

        Raises LedgerError, MetadataError, StorageError, LogFencedError when another owner takes it at the
        same time, InvalidLogDataError, LogClosedError after `close`.
        """
        async with self._lock(name):
            # The lock keeps other calls from opening, creating or deleting this log. `close` does not wait
            # for a log that is not open yet.
            self._refuse_when_closed()
            log = self._logs.get(name)
            if log is not None:
                if log.state in (LogState.OPEN, LogState.TERMINATED):
                    return log
                await self._close_log(log)
            log = await recover_log(
                name,
                resources=LogResources(
                    store=self._store,
                    ledgers=self.ledgers,
                    clock=self._clock,
                    config=self.config if copies is None else replace(self.config, copies=copies),
                    spawn=self._spawn,
                ),
                sources=ReadSources(self.cache_budget, self._tiers, self.holes),
                cursor_work=CursorWork(self._flusher, self.replays),
                closed=self._forget,
            )
            self._logs[name] = log
            try:
                # Meanwhile `close` may have closed all logs that were open.
                self._refuse_when_closed()
            except LogClosedError:
                await self._close_log(log)
                raise
            return log

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise LogClosedError("the logs are closed")

    async def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Stores a log of that name, durable on return; it has no ledger and takes no memory until it is
        opened.

        Raises LogExistsError, MetadataError.
        """
        value = encode(LogMetadata(properties=properties))
        async with self._lock(name):
            try:
                await self._store.put(log_path(name), value, expected_version=MUST_NOT_EXIST)
            except BadVersionError as error:
                raise LogExistsError(name) from error

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def _forget(self, log: ManagedLog) -> None:
        if self._logs.get(log.name) is log:
            del self._logs[log.name]

    async def _close_log(self, log: ManagedLog) -> None:
        try:
            await log.close()
        except MagnetarError as error:  # recovery at the next opening ends its ledger
            _log.warning("log %s was not closed cleanly: %s", log.name, error)

    def opened(self, name: str) -> ManagedLog | None:
        """The log of that name when it is open in this process."""
        return self._logs.get(name)

    async def exists(self, name: str) -> bool:
        """Whether there is a log of that name, open or not. Raises MetadataError."""
        return await self._store.exists(log_path(name))

    async def peek(self, name: str, hidden: frozenset[str]) -> StoredSummary | None:
        """The stored state of a log, without opening it; see `peeking.py`. Raises what `peek` there
        raises."""
        return await peek(self._store, name, hidden)

    async def peek_sealed(self, name: str) -> list[SealedLedger]:
        """The sealed ledgers of a log, without opening it. Raises MetadataError, InvalidLogDataError."""
        return await peek_sealed(self._store, name)

    async def names(self, namespace: str) -> list[str]:
        """Names of the logs of a namespace `tenant/namespace`, sorted. Raises MetadataError."""
        parent = f"{namespace}/persistent"
        return [f"{parent}/{child}" for child in await self._store.children(f"{ROOT}/{parent}")]

    async def delete(self, name: str, confirmed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Deletes a log with its cursors and ledgers; closes it first when it is open.

        `confirmed` raises unless this process owns the log at a time after it is called. None: no other one
        can own it.

        Raises LogNotFoundError, MetadataError, LedgerError, StoreError, LogFencedError when another owner
        opens it meanwhile, what `confirmed` raises. When that happens half way, or the process ends, calling
        it again finishes the work.
        """
        async with self._lock(name):
            log = self._logs.get(name)
            if log is not None:
                await log.abandon()
            path = log_path(name)
            value = await self._store.get(path)
            if value is None:
                raise LogNotFoundError(name)
            metadata = decode(value.data, path)
            cursors: list[str] = []
            ids = [*(record.ledger_id for record in metadata.ledgers), *metadata.deleted_ledgers]
            for child in await self._store.children(path):
                cursor = await self._store.get(at := f"{path}/{child}")
                if cursor is not None:
                    cursors.append(at)
                    info = decode_info(cursor.data, at)
                    ids += [*info.deleted_ledgers, *info.side_ledgers]
                    ids += [info.ledger_id] if info.ledger_id != IN_STORE else []
            # Out of the list before they are deleted, in one change, and still known by their ids. The other
            # way round, an interrupted deletion would leave a log that names deleted ledgers, and could never
            # be opened again. This way it leaves an empty log.
            emptied = metadata.without(frozenset(record.ledger_id for record in metadata.ledgers))
            emptied = replace(emptied, deleted_ledgers=tuple(sorted(set(ids))))
            if confirmed is not None:
                # After the list was read. An owner that opened the log before is still the owner, which is
                # found here; one that opens it from now on changes the list's version.
                await confirmed()
            version = await self._empty(name, Put(path, encode(emptied), value.stat.version), cursors)
            for ledger_id in emptied.deleted_ledgers:
                await self.ledgers.delete(ledger_id)
            if self._tiers is not None and metadata.copies:
                await self._tiers.retire(name, metadata.copies)
            for copy in metadata.copies:
                await delete_copy(self._tiers, name, copy)
            try:
                await self._store.delete(path, expected_version=version)
            except (BadVersionError, HasChildrenError) as error:
                # Its new owner has opened it, empty, and acknowledges messages.
                raise LogFencedError(f"log {name} was taken over by another owner") from error
            if self._tiers is not None and metadata.copies:
                self._tiers.changed(name)

    async def _empty(self, name: str, emptied: Put, cursors: Sequence[str]) -> int:
        """Writes the list without ledgers and deletes the cursors at these paths; the version of the list.

        A cursor goes only while no other owner has opened the log: the next owner keeps those that were left.
        Raises LogFencedError, MetadataError.
        """
        left = [Delete(each) for each in cursors]
        first, left = left[: OPERATIONS_MAX - 1], left[OPERATIONS_MAX - 1 :]
        try:
            made, *_ = await self._store.transact([emptied, *first])
            assert made is not None, "a put has a version"
            while left:
                some, left = left[: OPERATIONS_MAX - 1], left[OPERATIONS_MAX - 1 :]
                await self._store.transact([Check(emptied.path, made.version), *some])
        except (BadVersionError, NotFoundError) as error:
            raise LogFencedError(f"log {name} was taken over by another owner") from error
        return made.version

    async def close(self) -> None:
        """Closes every log; nothing can be opened after. Errors are logged: reopening recovers.

        Also when their ledgers cannot be ended in _CLOSE_S: while the metadata service is away, the process
        would never end.
        """
        self._closed = True

        async def closing(log: ManagedLog) -> None:
            async with self._lock(log.name):
                await self._close_log(log)

        # Together, so that they share the syncs.
        work = [begin(closing(log)) for log in list(self._logs.values())]
        await ended(*work, within_s=_CLOSE_S)
        if late := [each for each in work if not each.done()]:
            _log.error(
                "%d logs could not be closed in %.0f s, as the metadata service or the bookies do not answer:"
                " what was acknowledged is durable, and the next opening of each recovers it",
                len(late),
                _CLOSE_S,
            )
        for each in work:
            if not each.cancel():
                each.result()
        self._flusher.close()
