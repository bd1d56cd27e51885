"""The ledger of a cursor's deltas, and the listener of its writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from magnetar.base.errors import LedgerError, MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import Ledgers, LedgerWriter
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.cursors.cursor_writes import Durable

_log = logging.getLogger("magnetar.managedlog")


class DeltaStore(Protocol):
    """The writer of the deltas."""

    def delta_durable(self, ledger: DeltaLedger, last_entry: int) -> None:
        """The ledger is durable up to this entry."""

    def ledger_lost(self, ledger: DeltaLedger, error: LedgerError) -> None:
        """No delta can be added any more."""


class DeltaLedger:
    """The ledger of the deltas, and the listener of its writer (WriterListener)."""

    __slots__ = (
        "_bytes_since",
        "_config",
        "_deltas_since",
        "_snapshot_bytes",
        "_store",
        "_written_bytes",
        "snapshot_durable",
        "writer",
    )

    writer: LedgerWriter

    def __init__(self, store: DeltaStore, config: ManagedLogConfig) -> None:
        self._store = store
        self._config = config
        self.snapshot_durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._snapshot_bytes = 0
        self._written_bytes = 0
        self._deltas_since = self._bytes_since = 0

    def began(self, snapshot_bytes: int) -> None:
        """Its first entry is a snapshot of this many bytes."""
        self._snapshot_bytes = snapshot_bytes

    def wrote(self, size_bytes: int, *, whole: bool) -> None:
        """One more entry was appended: a delta, or the `whole` state again."""
        self._written_bytes += size_bytes
        if whole:
            self._snapshot_bytes, self._deltas_since, self._bytes_since = size_bytes, 0, 0
        else:
            self._deltas_since += 1
            self._bytes_since += size_bytes

    @property
    def outweighed(self) -> bool:
        """Whether the deltas outweigh the state so much that a new ledger is due."""
        config = self._config
        return self._written_bytes > max(
            config.cursor_compact_bytes_min, config.cursor_compact_factor * self._snapshot_bytes
        )

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next entry must be the whole state: recovery reads back to the last such entry only.

        So it reads at most `cursor_deltas_max` deltas, or a quarter of a larger snapshot; and writing costs
        at most five times the deltas.
        """
        return (
            self._deltas_since >= self._config.cursor_deltas_max
            and self._bytes_since * 4 >= self._snapshot_bytes
        )

    def durable(self, last_entry: int) -> None:
        if not self.snapshot_durable.done():
            self.snapshot_durable.set_result(None)
        self._store.delta_durable(self, last_entry)

    def failed(self, error: LedgerError) -> None:
        if not self.snapshot_durable.done():
            self.snapshot_durable.set_exception(error)
            # The waiting callers may have left; the error reaches the cursor's own waiting callers too.
            self.snapshot_durable.exception()
        self._store.ledger_lost(self, error)


async def seal(writer: LedgerWriter) -> None:
    """Closes a cursor ledger. A failure is harmless: the next process that opens the ledger recovers its
    end."""
    try:
        await writer.close()
    except MagnetarError as error:  # the docstring's reason: recovery ends it
        _log.debug("cursor ledger %d was not sealed: %s", writer.ledger_id, error)


async def give_back(ledgers: Ledgers, ledger_ids: list[LedgerId], where: str) -> None:
    """Deletes ledgers and removes them from the list; one that cannot be deleted now stays in it."""
    for ledger_id in list(ledger_ids):
        try:
            await ledgers.delete(ledger_id)
        except MagnetarError as error:  # it stays in the list, which the next fold tries again
            _log.warning("%s: ledger %d could not be deleted: %s", where, ledger_id, error)
        else:
            if ledger_id in ledger_ids:
                ledger_ids.remove(ledger_id)


async def outcome(when_durable: Callable[[Durable], None]) -> None:
    """Waits for the call of `when_durable`; raises its error."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    when_durable(report)
    await done
