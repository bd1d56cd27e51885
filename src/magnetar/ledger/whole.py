"""Ledgers that are written once, as a whole (driver)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from magnetar.base.errors import LedgerError, MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import Ledgers


class _Written:
    """Waits until a ledger is durable up to its last entry (WriterListener)."""

    __slots__ = ("done", "last_entry")

    def __init__(self, last_entry: int) -> None:
        self.last_entry = last_entry
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def durable(self, last_entry: int) -> None:
        if last_entry >= self.last_entry and not self.done.done():
            self.done.set_result(None)

    def failed(self, error: LedgerError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            # The waiting caller may have left.
            self.done.exception()


async def write_whole(
    ledgers: Ledgers, entries: list[bytes], custom_metadata: Mapping[str, bytes], now_ms: int
) -> LedgerId:
    """Writes a ledger of these entries, at least one; durable and closed on return. `now_ms`: Unix time.

    Raises LedgerError, MetadataError: then the ledger is deleted.
    """
    heard = _Written(len(entries) - 1)
    writer = await ledgers.create(heard, custom_metadata)
    try:
        writer.append(entries, None, 0, now_ms)
        await heard.done
        await writer.close()
    except MagnetarError:
        await ledgers.delete(writer.ledger_id)
        raise
    return writer.ledger_id
