"""Stores a durable cursor: deltas in a ledger of its own, at times a snapshot in a new ledger.

    state in the metadata store ──first change──▶ switching ──▶ ledger: snapshot, delta, delta, …
          ▲                                          ▲                     │ deltas outweigh the snapshot,
          └─── clean close or full disk, when small ─┴─────────────────────┘ a seek, or a lost ledger

Switching: a new ledger is created, its first entry is a snapshot; once that is durable the value in the
metadata store names the new ledger; then the old ledger is deleted. Until then the old ledger counts, and
nothing is added to it: changes made meanwhile are written after the switch.

At most one delta is in flight, so all changes of one group commit of the bookie are one entry. A seek
switches too, which makes the mark-delete in the metadata store a lower bound at all times. `cursor_writes.py`
decides what is written when, and which callers are told.

kill -9 at any point: recovery reads the ledger that the metadata store names, a prefix of the deltas that
were written; a change is reported durable only when it is in that prefix.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.base.errors import LedgerError, MagnetarError, disk_full
from magnetar.base.ids import LedgerId, LedgerIds
from magnetar.managedlog.broker_times import LastUse
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, CursorValue, encode_entry, encode_info
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.cursors.cursor_flusher import CursorFlusher
from magnetar.managedlog.cursors.cursor_key import CursorKey
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.cursors.cursor_writes import CursorWrites, Durable, WritePlan, Writing
from magnetar.managedlog.cursors.delta_ledger import DeltaLedger, give_back, outcome, seal
from magnetar.managedlog.errors import CursorClosedError, LogFencedError
from magnetar.managedlog.resources import LogResources
from magnetar.metadata.store import BadVersionError, NotFoundError
from magnetar.runtime.uninterrupted import uninterrupted

_log = logging.getLogger("magnetar.managedlog")

COMPONENT: Final = b"managed-ledger"
SIDE_COMPONENT: Final = b"cursor-side-ledger"
APPLICATION: Final = b"pulsar"


class CursorStore:
    """Makes the changes of one cursor's state durable."""

    def __init__(
        self,
        *,
        key: CursorKey,
        state: CursorState,
        info: CursorValue,
        version: int,
        resources: LogResources,
        flusher: CursorFlusher,
        fenced: Callable[[LogFencedError], None],
    ) -> None:
        """`info`: the value at its path with its `version`; `fenced` is called when another owner did."""
        self.state = state
        self._path = key.path
        self._version = version
        self._ledger_id = info.ledger_id
        self._bound = info.state
        self._deleted, self.side_ledgers = list(info.deleted_ledgers), info.side_ledgers
        self.cursor_properties: Mapping[str, str] = dict(info.cursor_properties)
        self.last_use = LastUse(resources.clock, info.last_active_ms)
        self.tags = {
            "application": APPLICATION,
            "component": COMPONENT,
            "pulsar/managed-ledger": key.log_name.encode(),
            "pulsar/cursor": key.name.encode(),
        }
        self._where = str(key)
        self._writes = CursorWrites(self._where, state)
        self._store = resources.store
        self._ledgers = resources.ledgers
        self._clock = resources.clock
        self._config = resources.config
        self._spawn = resources.spawn
        self._flusher = flusher
        self.fenced = fenced
        self._ledger: DeltaLedger | None = None
        """Takes the deltas; None when the next write must begin a new one."""
        self._delta_entry = -1
        """Entry id of the delta under way."""
        self._put_lock = asyncio.Lock()

    @property
    def ledger_id(self) -> LedgerId:
        """Ledger named in the metadata store; IN_STORE when there is none."""
        return self._ledger_id

    def changed(self) -> None:
        """The state has changed."""
        writes = self._writes
        if not writes.closed and not writes.busy:
            if writes.awaited:
                self._flusher.soon(self)
            else:
                self._flusher.later(self)

    def when_durable(self, callback: Durable) -> None:
        """Calls `callback` once all changes so far are durable; at once when they are."""
        writes = self._writes
        if not writes.dirty:
            callback(None)
        elif writes.closed:
            callback(CursorClosedError(f"{self._where} is closed"))
        else:
            writes.wait(callback)
            if not writes.busy:
                self._flusher.soon(self)

    def flush_changes(self) -> None:
        """Starts writing the changes, unless a write is under way: its end starts the next one."""
        plan = self._writes.plan(self._ledger, self._ledgers.has_room)
        if plan is WritePlan.DELTA:
            assert self._ledger is not None, "a delta goes into a ledger"
            self._append(self._ledger)
        elif plan is WritePlan.SWITCH:
            self._writes.begin(Writing.SWITCH)
            self._spawn(self._switch())
        elif plan is WritePlan.FOLD:
            self._begin_fold()
        elif plan is WritePlan.LATER:
            self._writes.failed(None)
            self._flusher.later(self)

    def _append(self, ledger: DeltaLedger) -> None:
        """Writes the changes, or the whole state again, into the ledger."""
        assert ledger.writer.ledger_id == self._ledger_id, "deltas go where recovery looks for them"
        whole = ledger.wants_snapshot or (self._config.cursors_for_pulsar and self._small())
        try:
            entry = self._encoded(self.state.snapshot() if whole else self.state.take_delta())
            delta_entry = ledger.writer.append([entry], None, 0, self._clock.now_ms())
        except (LedgerError, ValueError) as error:
            # Also an encoding error: the flusher calls other cursors in the same turn.
            self.ledger_lost(ledger, error)
            return
        assert delta_entry > self._delta_entry, "the ledger numbers entries upwards"
        self._delta_entry = delta_entry
        self._writes.begin(Writing.DELTA)
        ledger.wrote(len(entry), whole=whole)

    def _encoded(self, delta: CursorDelta) -> bytes:
        return encode_entry(delta, for_pulsar=delta.replaces and self._config.cursors_for_pulsar)

    def flush_failed(self, error: Exception) -> None:
        """The failed delta took its changes along: the next write must be a snapshot, with them again."""
        self._ledger = None
        self._writes.failed(error)

    def delta_durable(self, ledger: DeltaLedger, last_entry: int) -> None:
        """The ledger is durable up to `last_entry`, which may be the delta in flight."""
        if ledger is self._ledger and self._writes.now is Writing.DELTA and last_entry >= self._delta_entry:
            self._written()

    def _written(self) -> None:
        """The write under way is durable."""
        self._writes.written()
        if self._writes.dirty:
            self.changed()

    def ledger_lost(self, ledger: DeltaLedger, error: LedgerError | ValueError) -> None:
        """No delta can be added any more; the next flush begins a new ledger with a snapshot."""
        if ledger is self._ledger:
            self._ledger = None
            # A switch and a fold go on without it, and report their own end.
            if self._writes.now in (Writing.IDLE, Writing.DELTA):
                self._ledger_failed(error)

    def _ledger_failed(self, error: BaseException) -> None:
        """On a full disk a small state goes into the metadata store, which has a reserve for that: consumers
        free space by acknowledging. Otherwise the waiting callers get the error."""
        stores = disk_full(error) is not None and self._small()
        if self._writes.ledger_failed(error, store_takes_it=stores) is WritePlan.FOLD:
            self._begin_fold()
        elif not stores:
            _log.warning("%s could not be written: %s", self._where, error)

    def _begin_fold(self) -> None:
        self._writes.begin(Writing.FOLD)
        self._spawn(self._fold_at_last())

    async def _fold_at_last(self) -> None:
        try:
            await self._fold()
        except MagnetarError as error:  # `_fold` told those that wait; the next change writes all
            _log.warning("%s could not be written: %s", self._where, error)

    async def _switch(self) -> None:
        """Begins a new ledger with a snapshot: `Writing.SWITCH`."""
        assert self._writes.now is Writing.SWITCH, "the caller has begun the write"
        ledger = DeltaLedger(self, self._config)
        created = False
        try:
            ledger.writer = await self._ledgers.create(ledger, self.tags)
            created = True
            self._writes.include()
            snapshot = self.state.snapshot()
            bound = CursorDelta(snapshot.mark_delete, True, properties=snapshot.properties)
            entry = self._encoded(snapshot)
            ledger.began(len(entry))
            delta_entry = ledger.writer.append([entry], None, 0, self._clock.now_ms())
            await ledger.snapshot_durable
            old_ledger = self._ledger
            await self._put(ledger.writer.ledger_id, bound)
        except BaseException as error:
            # The old ledger is still right, but later deltas exist only in the lost snapshot.
            self._ledger = None
            if created:
                # To be deleted once a later value is stored; not before, as this one may have been stored.
                self._deleted.append(ledger.writer.ledger_id)
            if not isinstance(error, MagnetarError):
                self._writes.failed(error)
                raise
            self._ledger_failed(error)
            if isinstance(error, CursorClosedError):
                # No further value follows, and the last one does not name it: `_put` wrote nothing.
                await self.sweep()
            return
        # Meanwhile the new ledger may have failed already. The next append to it reports that.
        self._ledger, self._delta_entry = ledger, delta_entry
        self._written()
        if old_ledger is not None:
            await seal(old_ledger.writer)
        await self.sweep()

    @uninterrupted
    async def _put(
        self,
        ledger_id: LedgerId | None = None,
        state: CursorDelta | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the value in the metadata store, by default with the current state and properties.

        Raises LogFencedError, MetadataError, CursorClosedError.
        """
        async with self._put_lock:
            if self._writes.closed:
                raise CursorClosedError(f"{self._where} is closed")  # deleted or handed over: it is not ours
            if ledger_id is None or state is None:
                ledger_id, state = self._ledger_id, self._bound
            active_ms = self.last_use.at_ms
            replaced = [] if self._ledger_id in (IN_STORE, ledger_id) else [self._ledger_id]
            deleted = (*self._deleted, *replaced)
            assert ledger_id not in deleted, "what the value names is deleted"
            if properties is None:
                properties = self.cursor_properties
            value = CursorValue(ledger_id, state, properties, active_ms, deleted, self.side_ledgers)
            try:
                stat = await self._store.put(self._path, encode_info(value), expected_version=self._version)
            except BadVersionError as error:
                fenced = LogFencedError(f"{self._where} was taken over by another owner")
                self.fenced(fenced)
                raise fenced from error
            assert stat.version > self._version, "a value was stored and its version did not grow"
            self._version = stat.version
            self.last_use.stored_ms = active_ms
            self._ledger_id = ledger_id
            self._bound = state
            self.cursor_properties = properties
            # In place: meanwhile side ledgers may have been dropped and a lost ledger recorded.
            self._deleted += replaced

    async def store_used(self) -> None:
        """Makes the time of the subscription's last use durable. Raises what `flush` raises."""
        await self.flush()
        await self._put()

    async def sweep(self) -> None:
        """Deletes replaced ledgers; one that cannot be deleted now stays in the next value."""
        await give_back(self._ledgers, self._deleted, self._where)

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the subscription's properties; durable on return. Raises what `flush` raises."""
        await self.flush()
        # Meanwhile other calls may set theirs: each is in memory once it is stored, in the order of `_put`.
        await self._put(properties=dict(properties))

    async def change_side_ledgers(self, *, add: LedgerIds = (), drop: LedgerIds = ()) -> None:
        """Adds and removes ledgers of the cursor in its value; durable on return.

        Raises LogFencedError, MetadataError, CursorClosedError: then the stored value is unknown. Readers
        must tolerate a named ledger that does not exist, and one that exists and is not named.
        """
        before = self.side_ledgers
        self.side_ledgers = tuple(known for known in before if known not in drop) + add
        self._deleted.extend(drop)
        try:
            await self._put()
        except MagnetarError:
            self.side_ledgers = tuple(known for known in self.side_ledgers if known not in add) + drop
            # In place: `sweep` may be working on the list.
            self._deleted[:] = [known for known in self._deleted if known not in drop]
            raise
        await self.sweep()

    async def flush(self) -> None:
        """Waits until all changes so far are durable. Raises LedgerError, MetadataError, LogError."""
        await outcome(self.when_durable)

    async def close(self) -> None:
        """Makes the last changes durable and folds a small state into the metadata store.

        Raises what `flush` raises; the cursor is closed all the same.
        """
        writes = self._writes
        if writes.closed:
            return
        try:
            while writes.busy:
                # Folding must come after a write, and after the next one if changes began it meanwhile.
                await self.flush()
            if self._ledger_id != IN_STORE or writes.dirty:
                if self._small():
                    writes.begin(Writing.FOLD)
                    await self._fold()
                else:
                    if self._config.cursors_for_pulsar:
                        # The last entry may be a delta, which Pulsar would take for the whole state.
                        self._ledger = None
                        self.state.set_properties(self.state.properties)
                    await self.flush()
        finally:
            self.abandon()
            await self.ended()  # side ledgers or properties: the next opening must read what they become
            if self._ledger is not None:
                await seal(self._ledger.writer)

    def abandon(self) -> None:
        """Ends the cursor without writing: another owner has it, or it is being deleted."""
        self._flusher.forget(self)
        self._writes.close(CursorClosedError(f"{self._where} is closed"))

    async def ended(self) -> None:
        """Waits until the value of an abandoned cursor does not change any more."""
        async with self._put_lock:
            assert self._writes.closed, "the next write may begin at any time"

    def _small(self) -> bool:
        limit = self._config.cursor_fold_ranges_max
        if len(self.state.partial) > limit or len(self.state.redeliveries) > limit:
            return False
        return all(count < limit for count, _ in enumerate(self.state.ranges()))

    async def _fold(self) -> None:
        """Puts the whole state into the metadata store and deletes the ledgers: `Writing.FOLD`."""
        assert self._writes.now is Writing.FOLD, "the caller has begun the write"
        self._writes.include()
        try:
            await self._put(IN_STORE, self.state.snapshot())
        except MagnetarError as error:
            self._ledger = None
            self._writes.failed(error)
            raise
        # Meanwhile the ledger may have been lost; nothing else replaces it during a fold.
        old, self._ledger = self._ledger, None
        self._written()
        if old is not None:
            await seal(old.writer)
        await self.sweep()

    async def delete(self) -> None:
        """Removes the value, then the ledgers. Raises MetadataError."""
        self._flusher.forget(self)
        self._writes.close(CursorClosedError(f"{self._where} was deleted"))
        async with self._put_lock:
            try:
                await self._store.delete(self._path)
            except NotFoundError:  # it is gone, as requested; its ledgers follow below
                _log.warning("%s had been deleted before", self._where)
            except BaseException:
                # It may still exist: the cursor goes on, and its next value detects it by the version.
                self._writes.reopen()
                raise
        if self._ledger is not None:
            await seal(self._ledger.writer)
        own = [self._ledger_id] if self._ledger_id != IN_STORE else []
        # A switch under way records its ledger later, and deletes it itself.
        ledger_ids = [*self._deleted, *self.side_ledgers, *own]
        await give_back(self._ledgers, ledger_ids, self._where)

    def check(self) -> None:
        """Asserts the invariants."""
        self._writes.check()
        self.state.check()
        writing = self._writes.now
        assert writing is not Writing.DELTA or self._ledger is not None, "a delta has no ledger"
        # Where the value is written, it names the next place a turn before deltas go there.
        if self._ledger is not None and writing not in (Writing.SWITCH, Writing.FOLD):
            assert self._ledger_id == self._ledger.writer.ledger_id, "recovery reads another ledger"
            assert self._delta_entry >= 0, "the ledger begins with a snapshot"
        assert self._ledger_id not in self._deleted, "what the value names is deleted"
        assert len(set(self._deleted)) == len(self._deleted), "noted twice"
