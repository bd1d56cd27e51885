"""The ledgers of one log as tiered storage sees them, and the deletion of their copies."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.ledger.api import Ledgers
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.reading import LogReading
from magnetar.managedlog.stored_log import StoredLog
from magnetar.tiered.api import LedgerMovedError, SealedLedger, Tiers
from magnetar.tiered.context import OffloadContext, OffloadedCopy

if TYPE_CHECKING:
    from magnetar.managedlog.log import ManagedLog

_log = logging.getLogger("magnetar.managedlog")


class LogOffloading:
    """See `OffloadedLog`. The stored list is changed by version: who does not own the log any more fails."""

    def __init__(
        self,
        *,
        stored: StoredLog,
        ledgers: LedgerList,
        reading: LogReading,
        source: Ledgers,
        tiers: Tiers | None,
    ) -> None:
        self._stored = stored
        self._ledgers = ledgers
        self._reading = reading
        self._source = source
        self._tiers = tiers
        self._log: ManagedLog

    @property
    def name(self) -> str:
        return self._stored.name

    def belong_to(self, log: ManagedLog) -> None:
        """Called once, when the log is made of its parts."""
        self._log = log

    @property
    def open(self) -> bool:
        return self._log.state in (LogState.OPEN, LogState.TERMINATED)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes of the ledgers that have a complete copy, as the ledgers count them."""
        return sum(ledger.size_bytes for ledger in self._ledgers if ledger.offloaded)

    def sealed(self) -> list[SealedLedger]:
        return [
            SealedLedger(
                record.ledger_id, record.entries, record.size_bytes, record.timestamp_ms, record.offload
            )
            for record in self._stored.metadata.ledgers
            if record.sealed
        ]

    async def read(self, ledger_id: int, first_entry: int, bytes_max: int) -> list[EntryRun]:
        reader = await self._source.open(ledger_id)
        return await reader.read(first_entry, reader.last_entry, bytes_max)

    async def remember(self, ledger_id: int, known: OffloadContext | None, context: OffloadContext) -> None:
        def change(metadata: LogMetadata) -> LogMetadata:
            record = metadata.find(ledger_id)
            if record is None or not record.sealed or record.offload != known:
                raise LedgerMovedError(
                    f"ledger {ledger_id} of log {self.name} was deleted or copied meanwhile"
                )
            return metadata.offloading(ledger_id, context)

        try:
            await self._stored.update(change)
        except LogFencedError as error:
            self._log.fence(error)
            raise
        if (ledger := self._ledgers.find(ledger_id)) is not None:
            ledger.offload = context

    async def delete_local(self, ledger_id: int) -> None:
        ledger = self._ledgers.find(ledger_id)
        if ledger is None or ledger.offload is None or not ledger.offload.complete:
            raise LedgerMovedError(f"ledger {ledger_id} of log {self.name} has no complete copy")
        await self.remember(ledger_id, ledger.offload, ledger.offload.without_local())
        # Who reads on finds the copy from here on.
        self._reading.forget(ledger_id)
        try:
            await self._source.delete(ledger_id)
        except MagnetarError as error:
            _log.warning("log %s: ledger %d could not be deleted: %s", self.name, ledger_id, error)
        else:
            self._stored.deleted((ledger_id,))

    async def delete_copies(self) -> None:
        """Deletes the objects of ledgers that have left the list; what fails is left to the next call."""
        copies = self._stored.copies_to_delete
        if self._tiers is not None and copies:
            try:
                await self._tiers.retire(self.name, copies)
            except MagnetarError as error:
                _log.warning("log %s: copies of deleted ledgers stay for now: %s", self.name, error)
                return
        for copy in copies:
            try:
                await delete_copy(self._tiers, self.name, copy)
            except MagnetarError as error:
                _log.warning("log %s: %s", self.name, error)
            else:
                self._stored.copy_deleted(copy.context.attempt)


async def delete_copy(tiers: Tiers | None, log_name: str, copy: OffloadedCopy) -> None:
    """Deletes the objects of an attempt. Raises StoreError.

    Those of another offloader, or of a process without tiered storage, are left.
    """
    if tiers is not None and not copy.context.foreign:
        await tiers.delete(log_name, copy)
    else:
        _log.warning(
            "log %s: the offloaded copy %s of ledger %d is left where it is: nothing here can delete it",
            log_name,
            copy.context.attempt,
            copy.ledger_id,
        )
