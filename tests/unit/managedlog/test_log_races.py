"""What others do to a log while it waits for storage. Each is a race that was lost once."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedgers, write_error
from fakes.managed_logs import NAME, Process
from magnetar.base.errors import LogError, MagnetarError, MetadataError
from magnetar.base.machine import InvalidTransitionError
from magnetar.managedlog import log_state
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import LogClosedError
from magnetar.managedlog.log_state import LedgersState, LogState
from support.tables import unreachable


def test_every_state_can_be_reached_and_the_last_ones_are_final() -> None:
    assert unreachable(log_state.TRANSITIONS, LogState.OPEN) == set()
    assert unreachable(log_state.LEDGERS_TRANSITIONS, LedgersState.BEGINNING) == set()
    names = {
        state.name
        for table in (log_state.TRANSITIONS, log_state.LEDGERS_TRANSITIONS)
        for state, following in table.items()
        if not following
    }
    assert names == {"CLOSED", "ENDED"}


def test_logs_that_are_closed_while_one_is_opened_leave_it_closed() -> None:
    """Closing went through the logs that were open. The one that came a moment later stayed open, and wrote
    when another process had it."""

    async def story() -> None:
        process = Process()
        process.store.put_gate = asyncio.Event()
        opening = asyncio.ensure_future(process.logs.open(NAME))
        await process.settle()
        await process.logs.close()
        process.store.put_gate.set()
        with pytest.raises(LogClosedError):
            await opening
        assert process.logs.opened(NAME) is None

    asyncio.run(story())


def test_a_ledger_that_is_sealed_when_the_log_ends_is_not_looked_for() -> None:
    """Closing failed, as the writer was lost, and forgot the ledgers that were left. Sealing one of them had
    begun, and ended with a traceback, as the ledger was not where it had been."""

    async def story() -> None:
        ledgers = FakeLedgers(auto_sync=False)
        process = Process(ledgers=ledgers, entries_max_per_ledger=1, retention=Retention(-1, -1))
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        first = log.append([b"a"], None).ledger_id
        await process.settle()
        process.store.put_errors.append(MetadataError("away"))
        ledgers.sync()
        await process.settle()
        second = log.append([b"b"], None).ledger_id
        await process.settle()
        assert second != first
        cursor.set_properties({"number": 1})
        log.check()
        closing = asyncio.ensure_future(log.close())
        await process.settle()
        trimming = asyncio.ensure_future(log.trim())
        await process.settle()
        process.store.put_gate = gate = asyncio.Event()
        ledgers.writer(second).fail(write_error())
        await process.settle()
        process.store.put_gate = None
        ledgers.auto_sync = True
        ledgers.sync()
        await process.settle()
        gate.set()
        await process.settle()
        assert closing.done()
        assert isinstance(closing.exception(), MagnetarError)
        assert trimming.done()
        assert trimming.exception() is None

    asyncio.run(story())


def test_a_log_whose_closing_was_cancelled_is_closed_by_the_next_who_tries() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        process.store.put_gate = asyncio.Event()
        closing = asyncio.ensure_future(log.close())
        await process.settle()
        assert log.state is LogState.CLOSING
        closing.cancel()
        await process.settle()
        process.store.put_gate.set()
        await process.logs.close()
        assert log.state is LogState.CLOSED

    asyncio.run(story())


def test_a_change_of_state_that_cannot_be_tells_how_it_came_to_that() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        await log.close()
        with pytest.raises(
            InvalidTransitionError, match=r"OPEN \(begins\), CLOSING \(another caller closes it\), CLOSED"
        ):
            log._life._machine.go(LogState.OPEN, "somebody wants it back")
        with pytest.raises(LogError):
            log.append([b"x"], None)

    asyncio.run(story())
