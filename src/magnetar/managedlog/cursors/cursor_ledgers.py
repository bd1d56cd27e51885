"""Further ledgers of a cursor: facts about its subscription that are too many for memory.

Each is written once, as a whole, and from then on named in the cursor's value; it is deleted when it is
dropped or the cursor is deleted. A crash while one is kept leaves a ledger that is not named; a crash while
one is dropped leaves no named ledger that is missing. So the content must be such that losing a ledger costs
work and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerReader, Ledgers, LedgerWriter, WriterListener
from magnetar.ledger.whole import write_whole
from magnetar.managedlog.cursors.cursor_store import SIDE_COMPONENT, CursorStore

_READ_BYTES: Final = 1 << 20


class CursorLedgers:
    """The further ledgers of one cursor."""

    __slots__ = ("_clock", "_ledgers", "_readers", "_store", "_tags")

    def __init__(self, store: CursorStore, ledgers: Ledgers, clock: Clock, tags: Mapping[str, bytes]) -> None:
        self._store = store
        self._ledgers = ledgers
        self._clock = clock
        self._tags = {**tags, "component": SIDE_COMPONENT}
        self._readers: dict[LedgerId, LedgerReader] = {}

    @property
    def ids(self) -> tuple[LedgerId, ...]:
        """Ledgers that are kept, oldest first."""
        return self._store.side_ledgers

    async def keep(self, entries: list[bytes]) -> LedgerId:
        """Writes a ledger of these entries, at least one; durable and named on return.

        Raises LedgerError, MetadataError, LogError: then nothing is kept.
        """
        ledger_id = await write_whole(self._ledgers, entries, self._tags, self._clock.now_ms())
        try:
            await self._store.change_side_ledgers(add=(ledger_id,))
        except MagnetarError:
            await self._ledgers.delete(ledger_id)
            raise
        return ledger_id

    async def begin(self, listener: WriterListener) -> LedgerWriter:
        """Creates a ledger for more entries than fit in memory, named before it has any: so a reader after a
        crash knows that it may be unfinished. Raises LedgerError, MetadataError, LogError: nothing is kept.
        """
        writer = await self._ledgers.create(listener, self._tags)
        try:
            await self._store.change_side_ledgers(add=(writer.ledger_id,))
        except MagnetarError:
            await self._ledgers.delete(writer.ledger_id)
            raise
        return writer

    async def open(self, ledger_id: LedgerId) -> LedgerReader:
        """A reader of a kept ledger. Raises LedgerError."""
        return await self._ledgers.open(ledger_id)

    async def drop(self, ledger_ids: tuple[LedgerId, ...]) -> None:
        """Deletes ledgers. Raises MetadataError, LogError: then they may still be named."""
        if not ledger_ids:
            return
        for ledger_id in ledger_ids:
            self._readers.pop(ledger_id, None)
        await self._store.change_side_ledgers(drop=ledger_ids)

    async def last_entry(self, ledger_id: LedgerId) -> int:
        """Number of the last entry of a kept ledger. Raises LedgerError."""
        return (await self._reader(ledger_id)).last_entry

    async def read(self, ledger_id: LedgerId, entry_id: int) -> bytes:
        """One entry of a kept ledger. Raises LedgerError, StorageError."""
        reader = await self._reader(ledger_id)
        runs = await reader.read(entry_id, entry_id, _READ_BYTES)
        return runs[0].entries[0]

    async def _reader(self, ledger_id: LedgerId) -> LedgerReader:
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = self._readers[ledger_id] = await self._ledgers.open(ledger_id)
        return reader
