"""The ledgers of one log from the point of view of tiered storage, and the deletion of their copies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.base.weak import nobody
from magnetar.ledger.api import Ledgers
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.stored_log import StoredLog
from magnetar.tiered.api import LedgerMovedError, SealedLedger, Tiers
from magnetar.tiered.context import OffloadContext, OffloadedCopy

_log = logging.getLogger("magnetar.managedlog")


class OwnedLog(Protocol):
    """The log of these ledgers; `log.py` `ManagedLog` documents each member."""

    @property
    def state(self) -> LogState: ...

    @property
    def retention(self) -> Retention: ...

    def fence(self, error: LogFencedError) -> None: ...


class LogOffloading:
    """See `OffloadedLog`. The stored list is changed by version: a former owner of the log fails."""

    def __init__(
        self,
        *,
        stored: StoredLog,
        ledgers: LedgerList,
        reading: LogReading,
        source: Ledgers,
        tiers: Tiers | None,
        clock: Clock,
    ) -> None:
        self._stored = stored
        self._ledgers = ledgers
        self._reading = reading
        self._source = source
        self._tiers = tiers
        self._clock = clock
        self._making: set[UUID] = set()
        """Attempts under way, and those that ledgers may name."""
        self._log: OwnedLog | None = None
        self._leave: Callable[[], None] = nobody
        self._retention: Retention
        """The retention of the log when it was closed."""

    @property
    def name(self) -> str:
        return self._stored.name

    def belong_to(self, log: OwnedLog, leave: Callable[[], None]) -> None:
        """Called once, when the log is assembled; `leave`: see `LedgerLifecycle.leave`."""
        self._log, self._leave = log, leave

    def end(self) -> None:
        """The log is closed."""
        assert self._log is not None
        self._retention = self._log.retention
        self._log, self._leave = None, nobody

    @property
    def open(self) -> bool:
        return self._log is not None and self._log.state in (LogState.OPEN, LogState.TERMINATED)

    def place(self, url: str) -> str:
        """The present URL of the store that the list names by this URL."""
        return url if self._tiers is None else self._tiers.place(url)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes of the ledgers with a complete copy, as counted in the ledgers."""
        return sum(ledger.size_bytes for ledger in self._ledgers if ledger.offloaded)

    def sealed(self) -> list[SealedLedger]:
        ledgers, visible = self._stored.metadata.sealed(), self._reading.visible
        if visible is None:
            return ledgers
        return [replace(ledger, held=visible.holds(ledger.ledger_id)) for ledger in ledgers]

    @property
    def first_behind(self) -> LedgerId | None:
        found = None
        for index in range(len(self._ledgers) - 1, -1, -1):
            ledger = self._ledgers[index]
            if ledger.offloaded:
                break
            found = ledger.ledger_id if ledger.entries else found
        return found

    @property
    def written(self) -> int | None:
        if not len(self._ledgers):
            return None
        last = self._ledgers[len(self._ledgers) - 1]
        return last.ledger_id if last.sealed_end is None else None

    async def first_time_ms(self, ledger_id: LedgerId) -> int:
        runs = await self._reading.read_intact(Position(ledger_id, 0), 1, 1)
        return runs[0].broker_time_ms if runs else self._clock.now_ms()

    def leave_ledger(self) -> None:
        if self._log is not None and self._log.state is LogState.OPEN:
            self._leave()

    async def read(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[EntryRun]:
        reader = await self._source.open(ledger_id)
        runs = await reader.read(first_entry, reader.last_entry, bytes_max)
        visible = self._reading.visible
        return runs if visible is None else visible.for_copy(runs)

    @property
    def retention(self) -> tuple[int, int]:
        kept = self._retention if self._log is None else self._log.retention
        return kept.ms, kept.size_bytes

    @property
    def replaced(self) -> int:
        return sum(copy.context.delete_after_ms > 0 for copy in self._stored.copies_to_delete)

    async def begin_merge(self, copy: OffloadedCopy) -> None:
        self._making.add(copy.context.attempt)
        try:
            await self._update(lambda metadata: metadata.making(copy))
        except LogFencedError:
            self._making.discard(copy.context.attempt)
            raise

    async def end_merge(
        self, made: OffloadedCopy, members: Sequence[SealedLedger], delete_after_ms: int
    ) -> None:
        entries = {ledger.ledger_id: ledger.entries for ledger in members}

        def change(metadata: LogMetadata) -> LogMetadata:
            for ledger in members:
                record = metadata.find(ledger.ledger_id)
                if record is None or record.offload is None or record.offload != ledger.offload:
                    raise LedgerMovedError(f"ledger {ledger.ledger_id} of log {self.name} changed meanwhile")
            return metadata.merging(made, entries, delete_after_ms)

        try:
            await self._update(change)
        except LedgerMovedError:
            self.drop_merge(made.context.attempt)
            raise
        # After any other failure the list may name it, so it stays until the log is opened again.
        self._making.discard(made.context.attempt)
        for record in self._stored.metadata.ledgers:
            if (ledger := self._ledgers.find(record.ledger_id)) is not None:
                ledger.offload = record.offload
        for ledger_id in entries:
            self._reading.forget(ledger_id)

    def drop_merge(self, attempt: UUID) -> None:
        self._making.discard(attempt)

    async def _update(self, change: Callable[[LogMetadata], LogMetadata]) -> None:
        if self._log is None or self._log.state in (LogState.CLOSING, LogState.CLOSED):
            # The log may have been opened again by now, and would take this write for another owner's.
            raise LedgerMovedError(f"log {self.name} was closed or deleted meanwhile")
        try:
            await self._stored.update(change)
        except LogFencedError as error:
            if self._log is not None:
                self._log.fence(error)
            raise

    async def remember(
        self, ledger_id: LedgerId, known: OffloadContext | None, context: OffloadContext
    ) -> None:
        def change(metadata: LogMetadata) -> LogMetadata:
            record = metadata.find(ledger_id)
            if record is None or not record.sealed or record.offload != known:
                raise LedgerMovedError(
                    f"ledger {ledger_id} of log {self.name} was deleted or copied meanwhile"
                )
            return metadata.offloading(ledger_id, context)

        await self._update(change)
        if (ledger := self._ledgers.find(ledger_id)) is not None:
            ledger.offload = context

    async def delete_local(self, ledger_id: LedgerId) -> None:
        ledger = self._ledgers.find(ledger_id)
        if ledger is None or ledger.offload is None or not ledger.offload.complete:
            raise LedgerMovedError(f"ledger {ledger_id} of log {self.name} has no complete copy")
        await self.remember(ledger_id, ledger.offload, ledger.offload.without_local())
        # Further reads find the copy from here on.
        self._reading.forget(ledger_id)
        try:
            await self._source.delete(ledger_id)
        except MagnetarError as error:
            # It stays in the list of ledgers to delete, for the next attempt.
            _log.warning("log %s: ledger %d could not be deleted: %s", self.name, ledger_id, error)
        else:
            self._stored.deleted((ledger_id,))

    async def delete_copies(self) -> None:
        """Deletes the objects of ledgers that have left the list, and of copies that were replaced for long
        enough; failures are left to the next call."""
        now_ms = self._clock.settled_ms()
        copies = [
            copy
            for copy in self._stored.copies_to_delete
            if copy.context.delete_after_ms <= now_ms and copy.context.attempt not in self._making
        ]
        if self._tiers is not None and copies:
            try:
                await self._tiers.retire(self.name, copies)
            except MagnetarError as error:
                # No copy is deleted before tables have let it go: the next round checks again.
                _log.warning("log %s: copies of deleted ledgers stay for now: %s", self.name, error)
                return
        for copy in copies:
            try:
                await delete_copy(self._tiers, self.name, copy)
            except MagnetarError as error:
                # It stays in the list of copies to delete, for the next round.
                _log.warning("log %s: %s", self.name, error)
            else:
                self._stored.copy_deleted(copy.context.attempt)


async def delete_copy(tiers: Tiers | None, log_name: str, copy: OffloadedCopy) -> None:
    """Deletes the objects of an attempt. Raises StoreError.

    Objects of another offloader, or in a process without tiered storage, are left.
    """
    if tiers is not None and not copy.context.foreign:
        await tiers.delete(log_name, copy)
    else:
        _log.warning(
            "log %s: the offloaded copy %s of ledger %d stays, because this broker cannot delete it",
            log_name,
            copy.context.attempt,
            copy.ledger_id,
        )
