"""Asks bookies for the lists of the entries that they hold of a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

from magnetar.base.errors import LedgerError
from magnetar.base.ids import LedgerId
from magnetar.ledger.autorecovery.fragments import Fragment
from magnetar.ledger.autorecovery.missing import missing_of
from magnetar.ledger.client.pool import BookiePool
from magnetar.runtime.threads import in_thread
from magnetar.wire.bookkeeper.availability import decode_entries
from magnetar.wire.bookkeeper.status import Status

MISSING_MAX: Final = 100_000
"""A bookie that lacks more entries of a fragment gets the whole fragment: the list would cost more than the
copies."""


class NoListError(LedgerError):
    """A bookie gives no list: Apache's with DbLedgerStorage do not answer the request."""


class EntryLists:
    """The lists of entries, over version 3 of the protocol."""

    def __init__(self, pool: BookiePool) -> None:
        """`pool` speaks version 3."""
        assert not pool.options.use_v2
        self._pool = pool

    async def held(self, bookie: str, ledger_id: LedgerId) -> bytes:
        """The list of a bookie; empty when it does not know the ledger. Raises NoListError."""
        result: asyncio.Future[tuple[Status, bytes | None]] = asyncio.get_running_loop().create_future()

        def answered(status: Status, entries: bytes | None) -> None:
            if not result.done():
                result.set_result((status, entries))

        self._pool.list_entries(bookie, ledger_id, answered)
        status, entries = await result
        if status is Status.NO_LEDGER:
            return b""
        if status is not Status.OK or entries is None:
            raise NoListError(f"{bookie} does not list its entries of ledger {ledger_id}: {status.name}")
        return entries


async def missing_at(fragment: Fragment, index: int, held: bytes) -> Sequence[int] | None:
    """The entries that the place lacks according to its bookie's list `held`, ascending. None: too many.
    Raises ProtocolError."""

    def compare() -> list[int]:
        runs = decode_entries(held) if held else iter(())
        return list(islice(missing_of(fragment.entries(index), runs), MISSING_MAX + 1))

    # A ledger may have millions of entries: other tasks must run meanwhile.
    missing = await in_thread(compare)
    return missing if len(missing) <= MISSING_MAX else None
