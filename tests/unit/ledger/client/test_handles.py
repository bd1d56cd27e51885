"""The end of an open ledger, asked for by several at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.client.handles import LedgerHandle
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.registry import StoredLedger


class Measuring:
    """In place of what bookies answer: entries of 10 bytes each; a read of an entry waits for its event."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """Entries that are being read."""
        self.may: dict[int, asyncio.Event] = {}

    async def last_confirmed(self) -> int:
        return self.last

    async def read(self, first: int, last: int, bytes_max: int) -> list[Any]:
        self.asked.put_nowait(last)
        await self.may.setdefault(last, asyncio.Event()).wait()
        return [SimpleNamespace(length_bytes=10 * (last + 1))]


def opened(metadata: LedgerMetadata, bookies: Measuring) -> tuple[LedgerHandle, SimpleNamespace]:
    async def stored(ledger_id: int) -> SimpleNamespace:
        return SimpleNamespace(metadata=shared.metadata)

    shared = SimpleNamespace(metadata=metadata)
    cluster: Any = SimpleNamespace(
        ledgers=SimpleNamespace(read=stored), options=SimpleNamespace(use_v2=False), pool=None
    )
    handle = LedgerHandle(cluster, StoredLedger(LedgerId(1), metadata, 0), b"", LedgerEnd(-1, 0))
    handle._reads = handle._tail = cast("Any", bookies)
    return handle, shared


METADATA = LedgerMetadata(LedgerState.OPEN, None, ((0, ("b:1",)),))


def test_an_older_answer_does_not_take_back_the_length() -> None:
    """Entry 5 was measured after entry 7: the ledger ended at 7 and had the length up to 5."""

    async def story() -> None:
        bookies = Measuring(5)
        handle, _ = opened(METADATA, bookies)
        earlier = asyncio.ensure_future(handle.read_last_confirmed())
        await bookies.asked.get()
        bookies.last = 7
        later = asyncio.ensure_future(handle.read_last_confirmed())
        await bookies.asked.get()
        bookies.may[7].set()
        await later
        bookies.may[5].set()
        await earlier
        assert (handle.last_entry, handle.length_bytes) == (7, 80)

    asyncio.run(story())


def test_a_ledger_that_was_closed_meanwhile_ends_where_its_metadata_says() -> None:
    async def story() -> None:
        bookies = Measuring(5)
        handle, shared = opened(METADATA, bookies)
        measuring = asyncio.ensure_future(handle.read_last_confirmed())
        await bookies.asked.get()
        shared.metadata = METADATA.closed(LedgerEnd(9, 100))
        await handle.refresh()
        bookies.may[5].set()
        await measuring
        assert (handle.last_entry, handle.length_bytes) == (9, 100)

    asyncio.run(story())
