"""The durable cursors of one log: created, recovered, deleted, closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import NamedTuple

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import decode_local
from magnetar.base.weak import nobody
from magnetar.ledger.api import NoSuchLedgerError, may_have_lost
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, CursorValue, decode_info, encode_info
from magnetar.managedlog.cursors.cursor_flusher import CursorFlusher
from magnetar.managedlog.cursors.cursor_key import CursorKey
from magnetar.managedlog.cursors.cursor_ledgers import CursorLedgers
from magnetar.managedlog.cursors.cursor_replay import CursorReplay, ReplayProgress
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.cursors.cursor_store import CursorStore
from magnetar.managedlog.errors import (
    CursorNotFoundError,
    InvalidLogDataError,
    LogClosedError,
    LogFencedError,
)
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_metadata import log_path
from magnetar.managedlog.resources import LogResources
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError
from magnetar.runtime.tasks import gathered, settled

_log = logging.getLogger("magnetar.managedlog")


class CursorWork(NamedTuple):
    """What the cursors of all logs share."""

    flusher: CursorFlusher
    replays: ReplayProgress


class LogCursors:
    """The durable cursors of one log, by name."""

    def __init__(
        self,
        log_name: str,
        ledger_list: LedgerList,
        resources: LogResources,
        work: CursorWork,
    ) -> None:
        self._flusher, self._progress = work
        self._changing = asyncio.Lock()
        self._log_name = log_name
        self._ledger_list = ledger_list
        self._resources = resources
        self._store = resources.store
        self._ledgers = resources.ledgers
        self._clock = resources.clock
        self._cursors: dict[str, Cursor] = {}
        self._stores: dict[str, CursorStore] = {}
        self._deleting: set[str] = set()
        self._ended = False
        """Whether no cursor is added any more: the existing ones were closed or abandoned."""
        self._advanced: Callable[[Position], None] = nobody
        self._fence: Callable[[LogFencedError], None] = nobody
        self.by_name: Mapping[str, Cursor] = MappingProxyType(self._cursors)
        """A live view."""
        self.damaged: dict[str, str] = {}
        """Cursors that fell back because their stored state is damaged, with the reason."""

    def _key(self, name: str) -> CursorKey:
        return CursorKey(self._log_name, name)

    async def open(
        self,
        name: str,
        mark_delete: Position,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> Cursor:
        """The cursor of that name; when there is none, a new one, durable on return.

        Raises LogFencedError, MetadataError, LogClosedError.
        """
        # A cursor that is being deleted must not be handed out: acknowledgements to it would be lost.
        if name not in self._deleting and (cursor := self._cursors.get(name)) is not None:
            return cursor
        async with self._changing:
            if (cursor := self._cursors.get(name)) is not None:
                return cursor
            self._check_open()
            state = CursorState(self._ledger_list, mark_delete, properties)
            info = CursorValue(IN_STORE, state.snapshot(), cursor_properties, self._clock.now_ms())
            try:
                stat = await self._store.put(
                    self._key(name).path, encode_info(info), expected_version=MUST_NOT_EXIST
                )
            except BadVersionError as error:
                # All cursors were read when the log was opened: only another owner can have created this one.
                fenced = LogFencedError(f"log {self._log_name} was taken over by another owner")
                self._fence(fenced)
                raise fenced from error
            # Meanwhile the log may have been closed. The cursor is stored, and the next opening of the log
            # has it. A second one would write to the same value, and each would take the other for another
            # owner.
            self._check_open()
            return self._add(name, state, info, stat.version)

    def _check_open(self) -> None:
        if self._ended:
            raise LogClosedError(f"log {self._log_name} was closed")

    def _add(self, name: str, state: CursorState, info: CursorValue, version: int) -> Cursor:
        store = self._stores[name] = CursorStore(
            key=self._key(name),
            state=state,
            info=info,
            version=version,
            resources=self._resources,
            flusher=self._flusher,
            fenced=self._fence,
        )
        cursor = self._cursors[name] = Cursor(
            name=name,
            state=state,
            ledgers=self._ledger_list,
            store=store,
            advanced=self._advanced,
            side=CursorLedgers(store, self._ledgers, self._clock, store.tags),
        )
        return cursor

    async def recover(
        self, advanced: Callable[[Position], None], fence: Callable[[LogFencedError], None], *, is_new: bool
    ) -> None:
        """Reads every cursor of the log in its last durable state; `settle` must follow.

        A log that `is_new` has none.

        `advanced` is called with each new mark-delete of a cursor, `fence` when another owner is found. A
        cursor whose ledger is damaged falls back to its last readable state, see `damaged`. Raises
        LedgerError, MetadataError, StorageError when something cannot be read now, InvalidLogDataError for a
        damaged value in the metadata store, which has no earlier state.
        """
        self._advanced, self._fence = advanced, fence
        if is_new:
            return
        stored: dict[str, tuple[CursorValue, int]] = {}
        for child in await self._store.children(log_path(self._log_name)):
            if (found := await self._stored(name := decode_local(child))) is not None:
                stored[name] = found
        work = any(info.ledger_id != IN_STORE for info, _ in stored.values())
        async with self._progress.turns.turn() if work else nullcontext():
            read = {name: await self._recovered(name, *found) for name, found in stored.items()}
        # Together, so that they share the commits.
        await gathered(
            self._stores[name].sweep()
            for name, info in read.items()
            if info is not None and info.deleted_ledgers
        )

    async def _stored(self, name: str) -> tuple[CursorValue, int] | None:
        """The value of a cursor and its version; None: there is no such cursor."""
        path = self._key(name).path
        value = await self._store.get(path)
        return None if value is None else (decode_info(value.data, path), value.stat.version)

    async def _recovered(self, name: str, info: CursorValue, version: int) -> CursorValue | None:
        """Adds a cursor as its value says, and returns that; None: it was deleted meanwhile."""
        while True:
            state = CursorState(self._ledger_list, info.state.mark_delete)
            try:
                if info.ledger_id == IN_STORE or not await self._replay(name, state, info.ledger_id):
                    state.apply(info.state)
            except NoSuchLedgerError:
                # A former owner may still be at work: then the state is elsewhere since the value was read,
                # and the ledger was deleted.
                await self._store.sync()
                found = await self._stored(name)
                if found is None:
                    return None
                if found[1] != version:
                    info, version = found
                    continue
                self._fall_back(name, f"its ledger {info.ledger_id} is lost")
                state.apply(info.state)
            self._add(name, state, info, version)
            return info

    def settle(self) -> None:
        """Adapts the recovered cursors to the present ledgers of the log."""
        for store in self._stores.values():
            store.state.settle()

    async def _replay(self, name: str, state: CursorState, ledger_id: LedgerId) -> bool:
        """Applies the readable part of a cursor ledger; False when no entry is readable. Raises
        NoSuchLedgerError.

        A delta only adds acknowledgements, as a seek begins a new ledger. So the part before the damage is an
        earlier state of the cursor, and so is the value in the metadata store. Messages are delivered again,
        none are lost.
        """
        replay = CursorReplay(state, ledger_id, self._resources.config, self._progress)
        try:
            reader = await self._ledgers.open(ledger_id, to_replace=True)
            with self._progress.replaying(name=f"{self._log_name} cursor {name!r}"):
                await replay.run(reader)
            if loss := may_have_lost(reader):
                self._fall_back(name, f"the last entries of its ledger {ledger_id} may be lost: {loss}")
        except (CorruptDataError, InvalidLogDataError) as error:
            self._fall_back(
                name, f"its ledger {ledger_id} is damaged from entry {replay.position} on: {error}"
            )
        return replay.position > 0

    def _fall_back(self, name: str, reason: str) -> None:
        self.damaged[name] = reason
        _log.error(
            "%s cursor %r falls back to its last readable state, messages acknowledged since are delivered"
            " again: %s",
            self._log_name,
            name,
            reason,
        )

    async def delete(self, name: str) -> None:
        """Removes a cursor for good. Raises CursorNotFoundError, MetadataError."""
        async with self._changing:
            store = self._stores.get(name)
            if store is None:
                raise CursorNotFoundError(self._log_name, name)
            self._deleting.add(name)
            try:
                await store.delete()
            finally:
                self._deleting.discard(name)
            del self._stores[name], self._cursors[name]
            self.damaged.pop(name, None)

    async def close(self) -> None:
        """Makes every cursor durable and ends it. Raises the first error met, after closing all."""
        self._ended = True
        # A cursor that is created or deleted at this moment: the next opening must find what becomes of it.
        async with self._changing:
            # Together, so that they share the syncs.
            results = await settled(store.close() for store in self._stores.values())
        if (error := next((result for result in results if result is not None), None)) is not None:
            raise error

    def end(self) -> None:
        """The log is closed: cursors drop their references to it. They stay listed: they still hold back
        trimming."""
        self._advanced = self._fence = nobody
        for cursor in self._cursors.values():
            cursor.end()
        for store in self._stores.values():
            store.fenced = nobody

    def abandon(self) -> None:
        """Ends every cursor without writing."""
        self._ended = True
        for store in self._stores.values():
            store.abandon()

    async def abandoned(self) -> None:
        """Waits for writes that were under way when the cursors were abandoned."""
        for store in list(self._stores.values()):
            await store.ended()

    def check(self) -> None:
        """Asserts the invariants."""
        assert self._stores.keys() == self._cursors.keys(), "cursors and stores differ"
        assert self._deleting <= self._stores.keys(), "one that is not there is deleted"
        for store in self._stores.values():
            store.check()
