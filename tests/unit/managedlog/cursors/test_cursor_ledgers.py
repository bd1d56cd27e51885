"""Further ledgers of a cursor: kept over crashes, gone with the cursor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.ledgers import write_error
from fakes.managed_logs import Process
from fakes.metadata import FakeMetadataStore
from magnetar.base.errors import LedgerError, MetadataError
from magnetar.managedlog.cursors.cursor_ledgers import CursorLedgers
from magnetar.managedlog.errors import LogClosedError
from magnetar.metadata.store import Stat


async def side(process: Process) -> CursorLedgers:
    log, _ = await process.open()
    found = (await log.open_cursor("s", initial="earliest")).ledgers
    assert found is not None
    return found


def test_what_is_kept_survives_a_crash_and_what_is_dropped_does_not() -> None:
    async def story() -> None:
        process = Process()
        ledgers = await side(process)
        first = await ledgers.keep([b"a", b"b"])
        second = await ledgers.keep([b"c"])
        process = await process.crash()
        ledgers = await side(process)
        assert ledgers.ids == (first, second)
        assert await ledgers.last_entry(first) == 1
        assert await ledgers.read(first, 1) == b"b"
        await ledgers.drop((first,))
        assert first not in process.ledgers.ledgers
        process = await process.crash()
        ledgers = await side(process)
        assert ledgers.ids == (second,)
        assert await ledgers.read(second, 0) == b"c"
        await process.logs.close()

    asyncio.run(story())


def test_they_go_with_the_cursor() -> None:
    async def story() -> None:
        process = Process()
        ledgers = await side(process)
        kept = await ledgers.keep([b"a"])
        log, _ = await process.open()
        assert kept in process.ledgers.tagged("s")
        await log.delete_cursor("s")
        assert process.ledgers.tagged("s") == []
        await process.logs.close()

    asyncio.run(story())


def test_what_cannot_be_kept_leaves_nothing_behind() -> None:
    async def story() -> None:
        process = Process()
        ledgers = await side(process)
        process.ledgers.auto_sync = False
        keeping = asyncio.create_task(ledgers.keep([b"a"]))
        await process.settle()
        (ledger_id,) = process.ledgers.tagged("s")
        writer = process.ledgers.ledgers[ledger_id].writer
        assert writer is not None
        writer.fail(write_error())
        with pytest.raises(LedgerError):
            await keeping
        assert process.ledgers.tagged("s") == []
        process.ledgers.auto_sync = True
        process.store.put_errors.append(MetadataError("the store is away"))
        with pytest.raises(MetadataError):
            await ledgers.keep([b"a"])
        assert process.ledgers.tagged("s") == []
        assert ledgers.ids == ()
        await process.logs.close()

    asyncio.run(story())


class LateWrites(FakeMetadataStore):
    """Writes of one value wait for the gate."""

    def __init__(self, ending: str) -> None:
        super().__init__()
        self._ending = ending
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, path: str, data: bytes, **how: Any) -> Stat:
        if path.endswith(self._ending):
            await self.gate.wait()
        return await super().put(path, data, **how)


def test_a_log_is_closed_once_no_write_of_a_cursor_is_under_way() -> None:
    """A compaction that was still writing changed the value after the next opening had read it, and was taken
    for another owner."""

    async def story() -> None:
        store = LateWrites("/s")
        process = Process(store=store)
        ledgers = await side(process)
        store.gate.clear()
        keeping = asyncio.ensure_future(ledgers.keep([b"a"]))
        await process.settle()
        closing = asyncio.ensure_future(process.logs.close())
        await process.settle()
        assert not closing.done(), "the value may change after this"
        store.gate.set()
        await closing
        kept = await keeping
        process = await process.crash()
        assert (await side(process)).ids == (kept,)
        await process.logs.close()

    asyncio.run(story())


def test_a_log_is_closed_once_no_cursor_is_being_created() -> None:
    """The next opening did not list it, and took its value for another owner's."""

    async def story() -> None:
        store = LateWrites("/s")
        process = Process(store=store)
        log, _ = await process.open()
        store.gate.clear()
        opening = asyncio.ensure_future(log.open_cursor("s", initial="earliest"))
        behind = asyncio.ensure_future(log.open_cursor("t", initial="earliest"))
        await process.settle()
        closing = asyncio.ensure_future(process.logs.close())
        await process.settle()
        assert not closing.done(), "a cursor may come after this"
        store.gate.set()
        await closing
        for each in (opening, behind):
            with pytest.raises(LogClosedError):
                await each
        process = await process.crash()
        log, _ = await process.open()
        assert set(log.cursors) == {"s"}, "the one behind was not begun any more"
        await process.logs.close()

    asyncio.run(story())
