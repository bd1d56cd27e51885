"""What others do to a cursor while it waits for storage. Each is a race that was lost once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fakes.ledgers import write_error
from fakes.managed_logs import NAME, Process
from magnetar.base.errors import DiskFullError, MetadataError
from magnetar.base.ids import Position
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.errors import CursorClosedError, LogClosedError
from magnetar.managedlog.log import ManagedLog

PATH = f"/managed-ledgers/{NAME}/s"


async def begin(process: Process) -> tuple[ManagedLog, Cursor, int]:
    log, _ = await process.open()
    cursor = await log.open_cursor("s", initial="earliest")
    ledger_id = log.append([b"x"] * 20, None).ledger_id
    await process.settle()
    return log, cursor, ledger_id


def test_properties_that_could_not_be_stored_take_no_others_along() -> None:
    """The first call failed and put back what there was before it, while the second waited for its turn: the
    second stored that, and told its caller that his were stored."""

    async def story() -> None:
        process = Process()
        _, cursor, _ = await begin(process)
        process.store.put_errors.append(MetadataError("away"))
        first = asyncio.ensure_future(cursor.set_cursor_properties({"a": "1"}))
        second = asyncio.ensure_future(cursor.set_cursor_properties({"b": "2"}))
        with pytest.raises(MetadataError):
            await first
        await second
        assert cursor.cursor_properties == {"b": "2"}
        assert decode_info(process.store.values[PATH].data, PATH).cursor_properties == {"b": "2"}
        await process.logs.close()

    asyncio.run(story())


def test_a_ledger_that_is_dropped_while_the_value_is_written_is_deleted() -> None:
    """The end of the write put the list of ledgers to delete back to what it was at its begin."""

    async def story() -> None:
        process = Process()
        _, cursor, _ = await begin(process)
        assert cursor.ledgers is not None
        kept = await cursor.ledgers.keep([b"fact"])
        process.store.put_gate = asyncio.Event()
        used = asyncio.ensure_future(cursor.store_used())
        await process.settle()
        dropped = asyncio.ensure_future(cursor.ledgers.drop((kept,)))
        await process.settle()
        process.store.put_gate.set()
        await used
        await dropped
        assert kept not in process.ledgers.ledgers
        await process.logs.close()

    asyncio.run(story())


def test_a_cursor_that_is_deleted_while_its_ledger_begins_leaves_none_behind() -> None:
    """The ledger was noted as one to delete with the next value, and no value follows a deletion."""

    async def story() -> None:
        process = Process()
        log, cursor, ledger = await begin(process)
        process.ledgers.auto_sync = False
        cursor.ack([Position(ledger, 3)])
        await process.settle()
        assert len(process.ledgers.tagged("s")) == 1
        await log.delete_cursor("s")
        process.ledgers.sync()
        process.ledgers.auto_sync = True
        await process.settle()
        assert process.ledgers.tagged("s") == []
        await process.logs.close()

    asyncio.run(story())


def test_a_ledger_that_is_lost_on_a_full_disk_while_nothing_changed_keeps_no_log_from_closing() -> None:
    """The state was written into the metadata store though it was durable. Closing waits for a write under
    way by waiting for the changes, and there were none: it went round and round and let no other task run."""

    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        cursor.ack([Position(ledger, 3)])
        await cursor.flush()
        full = write_error()
        full.__cause__ = DiskFullError("no room")
        puts = len(process.store.puts)
        process.ledgers.writer(cursor.ledger_id).fail(full)
        await process.settle()
        assert len(process.store.puts) == puts, "nothing changed, and nothing was to be written"
        process.ledgers.room = False
        cursor.ack([Position(ledger, 5)])
        await cursor.flush()
        assert process.store.puts[puts:] == [PATH], "it is still known that the disk is full"
        await process.logs.close()

    asyncio.run(story())


def test_a_cursor_that_is_made_while_its_log_closes_is_nobodys() -> None:
    """It was added to a closed log. The log was opened again, with the same cursor; what was acknowledged
    with the first one was written over what the second one had, and fenced the log."""

    async def story() -> None:
        process = Process()
        log, _, _ = await begin(process)
        process.store.put_gate = gate = asyncio.Event()
        made = asyncio.ensure_future(log.open_cursor("late", initial="earliest"))
        await process.settle()
        process.store.put_gate = None
        await process.logs.close()
        gate.set()
        with pytest.raises(LogClosedError):
            await made
        process = await process.restart()
        log, _ = await process.open()
        assert set(log.cursors) == {"s", "late"}
        await process.logs.close()

    asyncio.run(story())


def test_a_log_is_deleted_with_the_ledger_that_a_cursor_was_just_naming() -> None:
    """The deletion read which ledgers the cursors name; the write that was under way named another one."""

    async def story() -> None:
        process = Process()
        _, cursor, ledger = await begin(process)
        process.store.put_gate = asyncio.Event()
        cursor.ack([Position(ledger, 3)])
        outcomes: list[BaseException | None] = []
        cursor.when_durable(outcomes.append)
        await process.settle()
        assert len(process.ledgers.tagged("s")) == 1, "its snapshot is durable, and it is being named"
        deleting = asyncio.ensure_future(process.logs.delete(NAME))
        await process.settle()
        process.store.put_gate.set()
        await deleting
        await process.settle()
        assert [type(outcome) for outcome in outcomes] == [CursorClosedError]
        assert process.ledgers.ledgers == {}
        await process.logs.close()

    asyncio.run(story())


async def taken_over_while(
    monkeypatch: pytest.MonkeyPatch, first: Process, ledger_id: int, meanwhile: Callable[[], Awaitable[None]]
) -> tuple[Process, ManagedLog]:
    """The log of another process: it has read the cursor's value, and opens the ledger that this names after
    `meanwhile`."""
    opened = first.ledgers.open

    async def late(named: int, *, to_replace: bool = False) -> object:
        if named == ledger_id and named in first.ledgers.ledgers:
            await meanwhile()
            assert named not in first.ledgers.ledgers, "the test is of a ledger that is gone"
        return await opened(named, to_replace=to_replace)

    monkeypatch.setattr(first.ledgers, "open", late)
    second = Process(store=first.store, ledgers=first.ledgers, clock=first.clock)
    log, _ = await second.open()
    return second, log


def test_a_former_owner_that_names_another_ledger_takes_no_acknowledgements_along(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new owner had read the value, and the ledger that this named was gone when it was opened. The
    cursor went back to where its ledger had begun, as if that had been lost; the next value said all."""

    async def story() -> None:
        first = Process()
        _, cursor, ledger = await begin(first)
        cursor.ack([Position(ledger, 3)])
        await cursor.flush()
        cursor.ack([Position(ledger, 5)])
        await cursor.flush()

        async def goes_on() -> None:
            first.ledgers.writer(cursor.ledger_id).fail(write_error())
            cursor.ack([Position(ledger, 7)])
            await cursor.flush()
            await first.settle()

        second, log = await taken_over_while(monkeypatch, first, cursor.ledger_id, goes_on)
        acked = [entry for entry in range(20) if log.cursors["s"].is_acked(Position(ledger, entry))]
        assert acked == [3, 5, 7]
        assert log.info().cursors["s"].damage == ""
        assert "falls back" not in caplog.text
        log.cursors["s"].ack([Position(ledger, 9)])
        await log.cursors["s"].flush()
        await second.logs.close()

    asyncio.run(story())


def test_a_cursor_that_its_former_owner_deletes_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner had read its value, and had it as one whose ledger is lost."""

    async def story() -> None:
        first = Process()
        former, cursor, ledger = await begin(first)
        cursor.ack([Position(ledger, 3)])
        await cursor.flush()
        second, log = await taken_over_while(
            monkeypatch, first, cursor.ledger_id, lambda: former.delete_cursor("s")
        )
        assert "s" not in log.cursors
        assert log.info().cursors == {}
        await second.logs.close()

    asyncio.run(story())
