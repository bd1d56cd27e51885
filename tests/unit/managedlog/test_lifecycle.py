"""Rollover under load, trimming with cursors and retention, deletion, and look-ups over many ledgers."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedgers, write_error
from fakes.managed_logs import NAME, Process, positions_of, read_all, until
from magnetar.base.errors import LedgerError, MetadataError
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.ledger.api import Copies
from magnetar.managedlog import logs
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import CursorNotFoundError, LogNotFoundError
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_state import LogState


def ledger_ids(log: ManagedLog) -> list[int]:
    return [ledger.ledger_id for ledger in log.info().ledgers]


async def fill(process: Process, log: ManagedLog, ledgers: int, *, step_ms: int = 100) -> None:
    """Appends until the log has left `ledgers` ledgers of two entries each."""
    for number in range(ledgers):
        count = len(ledger_ids(log))
        process.clock.advance(step_ms)
        log.append([b"%d-a" % number, b"%d-b" % number], [3, 1])
        await until(process, lambda count=count: len(ledger_ids(log)) > count)  # type: ignore[misc]
    await process.settle()


def test_appends_go_on_during_rollover_and_nothing_overtakes() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False), entries_max_per_ledger=4)
        log, listener = await process.open()
        first = log.append([b"a"] * 4, None)
        await process.settle()
        assert len(ledger_ids(log)) == 2, "the next ledger is there while the first is still in flight"
        second = log.append([b"b", b"b"], None)
        assert second.ledger_id > first.ledger_id
        assert log.last_position.ledger_id == first.ledger_id
        new = process.ledgers.writer(second.ledger_id)
        assert new.last_pushed == -1, "held until the first ledger is durable to its end"
        log.check()
        process.ledgers.writer(first.ledger_id).sync(3)
        assert new.last_pushed == -1
        process.ledgers.writer(first.ledger_id).sync()
        assert new.last_pushed == 1
        assert log.last_position == Position(second.ledger_id, -1)
        process.ledgers.sync()
        assert listener.entries == [b"a"] * 4 + [b"b"] * 2
        assert [run.base_index for run in listener.runs] == [0, 3, 4]
        await process.settle()
        log.check()
        await process.logs.close()

    asyncio.run(story())


def test_a_crash_in_the_middle_of_a_rollover_leaves_no_gap() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False), entries_max_per_ledger=4)
        log, _ = await process.open()
        first = log.append([b"1", b"2", b"3", b"4"], None)
        await process.settle()
        second = log.append([b"5"], None)
        process.ledgers.writer(first.ledger_id).sync(2)
        process.ledgers.writer(second.ledger_id).sync()
        lost = await process.crash()
        lost.ledgers.auto_sync = True
        log, _ = await lost.open()
        entries = [entry for run in await read_all(log) for entry in run.entries]
        assert entries == [b"1", b"2"]
        assert log.next_index == 2
        await lost.logs.close()

    asyncio.run(story())


def test_a_failed_rollover_is_tried_again_later() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=1, retention=Retention(-1, -1))
        log, listener = await process.open()
        process.ledgers.create_errors.append(write_error())
        log.append([b"a"], None)
        await process.settle()
        log.append([b"b"], None)
        await process.settle()
        assert len(ledger_ids(log)) == 1, "not at once again"
        process.clock.advance(1000)
        process.store.put_errors.append(MetadataError("away"))
        log.append([b"c"], None)
        await process.settle()
        assert len(ledger_ids(log)) == 1
        process.clock.advance(1000)
        log.append([b"d"], None)
        await process.settle()
        assert len(ledger_ids(log)) == 2
        assert ledger_ids(log) == process.ledgers.tagged(None), "what could not be listed is deleted"
        assert listener.entries == [b"a", b"b", b"c", b"d"]
        assert log.state is LogState.OPEN
        await process.logs.close()

    asyncio.run(story())


def test_other_copies_begin_with_another_ledger() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        log.append([b"one"], None)
        await process.settle()
        (first,) = ledger_ids(log)
        log.set_copies(Copies(3, 3, 2))
        log.append([b"still there"], None)
        await until(process, lambda: len(ledger_ids(log)) > 1)
        assert log.append([b"here"], None).ledger_id == ledger_ids(log)[-1]
        log.set_copies(Copies(3, 3, 2))
        log.append([b"and here"], None)
        await process.settle()
        second = ledger_ids(log)[-1]
        copies = process.ledgers.copies
        assert (copies[first], copies[second]) == (None, Copies(3, 3, 2))
        assert ledger_ids(log) in ([first, second], [second])
        again = await process.restart()
        log = await again.logs.open(NAME, Copies(2, 2, 1))
        assert copies[ledger_ids(log)[-1]] == Copies(2, 2, 1)
        await again.logs.close()

    asyncio.run(story())


def test_an_old_ledger_is_left_by_trim() -> None:
    async def story() -> None:
        process = Process(rollover_ms_max=1000)
        log, _ = await process.open()
        log.append([b"a"], None)
        await process.settle()
        await log.trim()
        assert len(ledger_ids(log)) == 1
        process.clock.advance(1000)
        await log.trim()
        await process.settle()
        assert len(ledger_ids(log)) == 1, "the consumed one is gone, the new one is there"
        assert log.entry_count == 0
        await log.trim()
        await process.settle()
        assert len(ledger_ids(log)) == 1
        await process.logs.close()

    asyncio.run(story())


def test_the_slowest_cursor_holds_ledgers_back() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2)
        log, _ = await process.open()
        fast = await log.open_cursor("fast", initial="earliest")
        slow = await log.open_cursor("slow", initial="earliest")
        reader = log.new_reader_cursor(EARLIEST)
        await fill(process, log, 3)
        assert len(ledger_ids(log)) == 4
        ids = ledger_ids(log)
        fast.ack_cumulative(LATEST)
        await process.settle()
        assert ledger_ids(log) == ids
        slow.ack([Position(ids[0], 0), Position(ids[1], 0), Position(ids[1], 1)])
        await process.settle()
        assert ledger_ids(log) == ids
        slow.ack([Position(ids[0], 1)])
        assert slow.mark_delete == Position(ids[1], 1)
        await process.settle()
        assert ledger_ids(log) == ids[2:]
        assert process.ledgers.deleted[:2] == ids[:2]
        assert log.first_position == Position(ids[2], 0)
        assert slow.backlog_entries == 2
        assert reader.next_unacked(Position(ids[0], 0)) == Position(ids[2], 0)
        runs = await log.read(Position(ids[0], 1), 1000, 1000)
        assert positions_of(runs)[0] == Position(ids[2], 0)
        await log.delete_cursor("slow")
        await process.settle()
        assert ledger_ids(log) == ids[3:]
        with pytest.raises(CursorNotFoundError):
            await log.delete_cursor("slow")
        log.check()
        after = await process.crash()
        log, _ = await after.open()
        assert log.next_index == 12
        assert log.cursors["fast"].backlog_entries == 0
        await after.logs.close()

    asyncio.run(story())


def test_retention_keeps_consumed_ledgers_and_can_change() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2, retention=Retention(-1, -1))
        log, _ = await process.open()
        await fill(process, log, 3)
        ids = ledger_ids(log)
        assert len(ids) == 4
        log.retention = Retention(250, -1)
        process.clock.advance(100)
        assert await log.trim() == 1
        assert ledger_ids(log) == ids[1:]
        log.retention = Retention(-1, 6)
        await process.settle()
        assert ledger_ids(log) == ids[2:]
        log.retention = Retention()
        await process.settle()
        assert ledger_ids(log) == ids[3:]
        await process.logs.close()

    asyncio.run(story())


def test_a_ledger_that_could_not_be_deleted_is_deleted_at_the_next_opening() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2, retention=Retention(-1, -1))
        log, _ = await process.open()
        await fill(process, log, 1)
        first = ledger_ids(log)[0]
        process.ledgers.delete_errors.append(write_error())
        log.retention = Retention()
        await process.settle()
        assert first not in ledger_ids(log)
        assert first in process.ledgers.ledgers
        after = await process.crash()
        log, _ = await after.open()
        assert first not in after.ledgers.ledgers
        await after.logs.close()

    asyncio.run(story())


def test_index_and_time_are_found_over_ledgers() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2, retention=Retention(-1, -1), cache_bytes=0)
        log, _ = await process.open()
        start = process.clock.now_ms()
        await fill(process, log, 4)
        ids = ledger_ids(log)
        assert [ledger.first_index for ledger in log.info().ledgers] == [0, 4, 8, 12, 16]
        assert await log.position_of_index(0) == Position(ids[0], 0)
        assert await log.position_of_index(2) == Position(ids[0], 0)
        assert await log.position_of_index(3) == Position(ids[0], 1)
        assert await log.position_of_index(9) == Position(ids[2], 0)
        assert await log.position_of_index(15) == Position(ids[3], 1)
        assert await log.position_of_index(16) == Position(ids[4], 0)
        assert await log.index_of(Position(ids[2], 1)) == 11
        assert await log.index_of(LATEST) == 16
        assert await log.position_of_time(0) == Position(ids[0], 0)
        assert await log.position_of_time(start + 101) == Position(ids[1], 0)
        assert await log.position_of_time(start + 400) == Position(ids[3], 0)
        assert await log.position_of_time(start + 401) == Position(ids[4], 0)
        await process.logs.close()

    asyncio.run(story())


def test_one_large_ledger_is_searched_in_few_reads() -> None:
    async def story() -> None:
        process = Process(cache_bytes=0)
        log, _ = await process.open()
        for _ in range(64):
            process.clock.advance(10)
            log.append([b"x"] * 8, [2] * 8)
        await process.settle()
        start = process.clock.now_ms() - 640
        process.ledgers.reads_wait = True
        process.ledgers.reads = 0
        ledger_id = log.first_position.ledger_id
        assert await log.position_of_time(start + 305) == Position(ledger_id, 30 * 8)
        assert await log.position_of_index(301) == Position(ledger_id, 150)
        assert process.ledgers.reads <= 20
        await process.logs.close()

    asyncio.run(story())


def test_times_never_go_back() -> None:
    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        log.append([b"a"], None)
        await process.settle()
        process.clock._now_ms -= 5000
        log.append([b"b"], None)
        await process.settle()
        after = await process.crash()
        log, again = await after.open()
        log.append([b"c"], None)
        await after.settle()
        times = [run.broker_time_ms for run in listener.runs + again.runs]
        assert times == [times[0]] * 3
        await after.logs.close()

    asyncio.run(story())


@pytest.mark.leaves("a cursor's ledger that is never made: nothing syncs")
def test_delete_while_open_removes_everything_and_says_so() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        log.append([b"a"], None)
        receipts: list[BaseException | None] = []
        cursor = await log.open_cursor("s", initial="earliest")
        cursor.set_properties({"n": 1})
        cursor.when_durable(receipts.append)
        await process.settle()
        await process.logs.delete(NAME)
        await process.settle()
        assert len(listener.errors) == 1
        assert [type(error).__name__ for error in receipts] == ["CursorClosedError"]
        assert process.store.values == {}
        assert process.ledgers.tagged(None) == []
        with pytest.raises(LogNotFoundError):
            await process.logs.delete(NAME)
        process.ledgers.auto_sync = True
        log, _ = await process.open()
        assert log.next_index == 0
        await process.logs.close()

    asyncio.run(story())


def test_an_empty_log_leaves_no_ledger_when_closed() -> None:
    async def story() -> None:
        process = Process()
        for _ in range(3):
            await process.open()
            process = await process.restart()
        assert process.ledgers.ledgers == {}
        log, _ = await process.open()
        log.append([b"a"], [5])
        process = await process.crash()
        log, _ = await process.open()
        assert log.next_index in (0, 5)
        assert len(ledger_ids(log)) == len(process.ledgers.ledgers)
        await process.logs.close()

    asyncio.run(story())


def test_the_end_of_a_process_does_not_wait_for_storage_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "_CLOSE_S", 0.001)

    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        log.append([b"acknowledged"], None)
        await until(process, lambda: listener.entries == [b"acknowledged"])
        process.store.put_gate = asyncio.Event()
        await process.logs.close()
        assert "1 logs could not be closed" in caplog.text
        monkeypatch.undo()
        after = await process.crash()
        log, _ = await after.open()
        assert [each for run in await read_all(log) for each in run.entries] == [b"acknowledged"]
        await after.logs.close()

    asyncio.run(story())


def test_a_deletion_that_fails_half_way_can_be_called_again() -> None:
    """What names the ledgers goes last: without it the rest of them would stay for ever."""

    async def story() -> None:
        process = Process(entries_max_per_ledger=2)
        log, _ = await process.open()
        for _ in range(4):
            log.append([b"x", b"y"], None)
            await process.settle()
        delete, failed = process.ledgers.delete, []

        async def fails_once(ledger_id: int) -> None:
            if not failed:
                failed.append(ledger_id)
                raise write_error()
            await delete(ledger_id)

        process.ledgers.delete = fails_once  # type: ignore[method-assign]  # as a full disk would
        with pytest.raises(LedgerError):
            await process.logs.delete(NAME)
        assert await process.logs.exists(NAME)
        await process.logs.delete(NAME)
        assert not await process.logs.exists(NAME)
        assert process.ledgers.ledgers == {}

    asyncio.run(story())
