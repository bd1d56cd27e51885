"""The end of an open ledger, asked for by several at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd, NoSuchEntryError
from magnetar.ledger.client.handles import LedgerHandle
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.rules import READING_RULES
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

    def members_of(self, entry_id: int) -> tuple[str, ...]:
        return ("b:1",)

    async def read(self, first: int, last: int, bytes_max: int) -> list[Any]:
        self.asked.put_nowait(last)
        await self.may.setdefault(last, asyncio.Event()).wait()
        return [SimpleNamespace(length_bytes=10 * (last + 1))]


def opened(metadata: LedgerMetadata, bookies: Measuring) -> tuple[LedgerHandle, SimpleNamespace]:
    async def stored(ledger_id: int) -> SimpleNamespace:
        return SimpleNamespace(metadata=shared.metadata)

    shared = SimpleNamespace(metadata=metadata)
    cluster: Any = SimpleNamespace(
        ledgers=SimpleNamespace(read=stored),
        options=SimpleNamespace(use_v2=False),
        pool=None,
        reading=READING_RULES,
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


def test_an_older_answer_does_not_open_a_closed_ledger_again() -> None:
    """Of two answers of the metadata store the older one came last: the ledger was open again."""

    async def story() -> None:
        handle, _ = opened(METADATA, Measuring(5))
        answers: list[asyncio.Future[SimpleNamespace]] = []

        def ask(ledger_id: int) -> asyncio.Future[SimpleNamespace]:
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        handle._cluster.ledgers.read = ask  # type: ignore[method-assign,assignment]  # answers when told to
        older, newer = asyncio.ensure_future(handle.refresh()), asyncio.ensure_future(handle.refresh())
        await asyncio.sleep(0)
        answers[1].set_result(SimpleNamespace(metadata=METADATA.closed(LedgerEnd(9, 100))))
        await newer
        answers[0].set_result(SimpleNamespace(metadata=METADATA))
        await older
        assert handle.is_closed
        assert (handle.last_entry, handle.length_bytes) == (9, 100)

    asyncio.run(story())


def test_a_ledger_that_a_failed_read_found_closed_has_its_end() -> None:
    """It was closed without one: `refresh` asks no more, so a reader missed the entries up to the end."""

    class Gone(Measuring):
        async def read(self, first: int, last: int, bytes_max: int) -> list[Any]:
            raise NoSuchEntryError(LedgerId(1), first)

    async def story() -> None:
        handle, shared = opened(METADATA, Gone(5))
        handle._confirmed(5)
        shared.metadata = replace(METADATA.closed(LedgerEnd(9, 100)), ensembles=((0, ("b:2",)),))
        with pytest.raises(CorruptDataError):
            await handle.read(0, 5, 100)
        await handle.refresh()
        assert (handle.last_entry, handle.length_bytes) == (9, 100)

    asyncio.run(story())
