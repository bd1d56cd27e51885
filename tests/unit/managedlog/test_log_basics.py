"""Open, append, tail, read, acknowledge, crash, and open again."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedgers, write_error
from fakes.managed_logs import NAME, Process, positions_of, read_all
from magnetar.base.errors import MetadataError
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.managedlog.errors import LogClosedError, LogFailedError, LogFencedError, LogTerminatedError
from magnetar.managedlog.log_state import LogState


def test_appended_entries_are_told_when_durable_and_not_before() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        start = log.last_position
        first = log.append([b"a", b"bb"], None)
        second = log.append([b"ccc"], [5])
        assert first == Position(start.ledger_id, 0)
        assert second == Position(start.ledger_id, 2)
        assert log.pending_bytes == 6
        assert listener.runs == []
        assert log.last_position == start
        assert log.read_now(EARLIEST, 100, 100) == []
        process.ledgers.sync()
        assert listener.entries == [b"a", b"bb", b"ccc"]
        assert [run.base_index for run in listener.runs] == [0, 2]
        assert log.last_position == second
        assert log.next_index == 7
        assert (log.entry_count, log.size_bytes, log.pending_bytes) == (3, 6, 0)
        runs = log.read_now(EARLIEST, 100, 100)
        assert runs is not None
        assert runs[0] is listener.runs[0], "the tail is shared, not copied"
        log.check()
        await process.logs.close()

    asyncio.run(story())


def test_a_mark_in_the_middle_of_a_vector_splits_it() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        at = log.append([b"a", b"b", b"c"], [2, 3, 4])
        process.ledgers.writer(at.ledger_id).sync(2)
        assert listener.entries == [b"a", b"b"]
        assert log.pending_bytes == 1
        log.check()
        process.ledgers.sync()
        assert listener.entries == [b"a", b"b", b"c"]
        assert [run.base_index for run in listener.runs] == [0, 5]
        await process.logs.close()

    asyncio.run(story())


@pytest.mark.parametrize("clean", [True, False])
def test_reopening_continues_positions_indexes_and_times(clean: bool) -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        log.append([b"a", b"b"], [10, 10])
        await process.settle()
        after = await (process.restart() if clean else process.crash())
        log, _ = await after.open()
        assert log.next_index == 20
        position = log.append([b"c"], None)
        await after.settle()
        runs = await read_all(log)
        assert [entry for run in runs for entry in run.entries] == [b"a", b"b", b"c"]
        assert [run.base_index for run in runs] == [0, 20]
        assert positions_of(runs)[-1] == position
        assert position.ledger_id > runs[0].ledger_id
        log.check()
        await after.logs.close()

    asyncio.run(story())


def test_a_crash_keeps_what_was_told_and_may_lose_the_rest() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        at = log.append([b"a", b"b", b"c"], None)
        process.ledgers.writer(at.ledger_id).sync(2)
        after = await process.crash()
        after.ledgers.auto_sync = True
        log, _ = await after.open()
        runs = await read_all(log)
        assert [entry for run in runs for entry in run.entries] == listener.entries == [b"a", b"b"]
        assert log.next_index == 2
        await after.logs.close()

    asyncio.run(story())


@pytest.mark.parametrize("clean", [True, False])
def test_cursors_come_back(clean: bool) -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        cursor = await log.open_cursor("sub/a b", initial="earliest", properties={"x": 7})
        at = log.append([b"m"] * 10, [8] * 10)
        await process.settle()
        ledger = at.ledger_id
        cursor.ack([Position(ledger, 0), Position(ledger, 4), Position(ledger, 3), Position(ledger, 9)])
        assert cursor.ack_batch(Position(ledger, 6), (0b00001111,), 8) is False
        await cursor.flush()
        after = await (process.restart() if clean else process.crash())
        log, _ = await after.open()
        cursor = log.cursors["sub/a b"]
        assert cursor.mark_delete == Position(ledger, 0)
        assert cursor.acked_ranges() == [
            (Position(ledger, 3), Position(ledger, 4)),
            (Position(ledger, 9), Position(ledger, 9)),
        ]
        assert cursor.ack_set(Position(ledger, 6)) == (0b1111,)
        assert cursor.properties == {"x": 7}
        assert cursor.backlog_entries == 6
        assert cursor.next_unacked(Position(ledger, 3)) == Position(ledger, 5)
        assert cursor.next_unacked(Position(ledger, 9)) == Position(log.last_position.ledger_id, 0)
        assert cursor.ack_batch(Position(ledger, 6), (0b11110000,), 8) is True
        await after.logs.close()

    asyncio.run(story())


def test_positions_before_and_after_everything() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        ledger = log.last_position.ledger_id
        assert log.first_position == Position(ledger, 0)
        assert log.next_position(EARLIEST) == Position(ledger, 0)
        assert log.next_position(LATEST) == Position(ledger, 0)
        assert await log.read(LATEST, 100, 100) == []
        log.append([b"a", b"b"], None)
        await process.settle()
        assert log.next_position(LATEST) == Position(ledger, 2)
        assert log.previous_position(LATEST) == Position(ledger, 1)
        assert log.previous_position(EARLIEST) == Position(ledger, -1)
        assert log.entries_between(EARLIEST, LATEST) == 2
        await process.logs.close()

    asyncio.run(story())


def test_a_failed_writer_fails_the_log_until_it_is_opened_again() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        at = log.append([b"kept"], None)
        process.ledgers.sync()
        log.append([b"lost"], None)
        process.ledgers.writer(at.ledger_id).fail(write_error())
        assert isinstance(listener.errors[0], LogFailedError)
        assert log.state is LogState.FAILED
        assert log.pending_bytes == 0
        with pytest.raises(LogFailedError):
            log.append([b"more"], None)
        assert [run.entries for run in await read_all(log)] == [[b"kept"]]
        process.ledgers.auto_sync = True
        again, _ = await process.open()
        assert again is not log
        assert log.state is LogState.CLOSED
        again.append([b"more"], None)
        await process.settle()
        assert [run.entries for run in await read_all(again)] == [[b"kept"], [b"more"]]
        assert again.next_index == 2
        await process.logs.close()
        with pytest.raises(LogClosedError):
            again.append([b"late"], None)

    asyncio.run(story())


def test_a_second_owner_fences_the_first() -> None:
    async def story() -> None:
        first = Process()
        log, listener = await first.open()
        cursor = await log.open_cursor("s", initial="earliest")
        log.append([b"a"], None)
        await first.settle()
        second = Process(store=first.store, ledgers=first.ledgers, clock=first.clock)
        taken, _ = await second.open()
        assert isinstance(listener.errors[0], LogFencedError)
        assert log.state is LogState.FENCED
        with pytest.raises(LogFencedError):
            log.append([b"b"], None)
        cursor.ack([Position(1, 0)])
        await first.logs.close()
        assert [run.entries for run in await read_all(taken)] == [[b"a"]]
        await taken.set_properties({"still": "mine"})
        await second.logs.close()

    asyncio.run(story())


def test_the_version_of_the_list_fences_too() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        path = f"/managed-ledgers/{NAME}"
        await process.store.put(path, process.store.values[path].data)
        log.append([b"a"], None)
        with pytest.raises(LogFencedError):
            await log.set_properties({"a": "b"})
        assert isinstance(listener.errors[0], LogFencedError)
        assert listener.runs == []
        process.ledgers.sync()
        assert listener.runs == [], "nothing is reported durable by a fenced log"
        await process.logs.close()

    asyncio.run(story())


def test_terminate_is_for_ever() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        at = log.append([b"a", b"b"], None)
        assert await log.terminate() == Position(at.ledger_id, 1)
        with pytest.raises(LogTerminatedError):
            log.append([b"c"], None)
        after = await process.restart()
        log, _ = await after.open()
        assert log.terminated == log.last_position == Position(at.ledger_id, 1)
        with pytest.raises(LogTerminatedError):
            log.append([b"c"], None)
        assert [run.entries for run in await read_all(log)] == [[b"a", b"b"]]
        assert await log.terminate() == Position(at.ledger_id, 1)
        await after.logs.close()

    asyncio.run(story())


def test_a_log_whose_end_could_not_be_stored_is_opened_anew() -> None:
    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        log.append([b"a"], None)
        await process.settle()
        process.store.put_errors.append(MetadataError("away"))
        with pytest.raises(MetadataError):
            await log.terminate()
        assert log.state is LogState.FAILED
        assert len(listener.errors) == 1
        again, _ = await process.open()
        assert again.terminated is None
        last = await again.terminate()
        assert [run.entries for run in await read_all(again)] == [[b"a"]]
        assert again.terminated == last
        await process.logs.close()

    asyncio.run(story())


def test_an_empty_log_can_be_terminated() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        position = await log.terminate()
        assert position.entry_id == -1
        after = await process.restart()
        log, _ = await after.open()
        assert log.last_position == position
        assert await log.read(log.first_position, 10, 10) == []
        assert log.cursors["s"].backlog_entries == cursor.backlog_entries == 0
        log.cursors["s"].ack_cumulative(LATEST)
        log.cursors["s"].reset(EARLIEST)
        await after.logs.close()

    asyncio.run(story())


def test_open_is_single_flight_and_names_lists_logs() -> None:
    async def story() -> None:
        process = Process()
        first, second = await asyncio.gather(process.logs.open(NAME), process.logs.open(NAME))
        assert first is second
        assert await process.logs.exists(NAME)
        assert not await process.logs.exists(NAME + "x")
        await process.logs.open(NAME + "x")
        assert await process.logs.names("public/default") == [NAME, NAME + "x"]
        await first.set_properties({"k": "v"})
        after = await process.restart()
        log, _ = await after.open()
        assert log.properties == {"k": "v"}
        await after.logs.delete(NAME)
        assert await after.logs.names("public/default") == [NAME + "x"]
        await after.logs.delete(NAME + "x")
        assert after.ledgers.ledgers == {}
        assert after.store.values == {}
        await after.logs.close()

    asyncio.run(story())


@pytest.mark.parametrize("counts", [None, [2]])
def test_entries_of_one_millisecond_share_a_run_until_one_is_durable(counts: list[int] | None) -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        given = [b"a"]
        places = [log.append(given, counts), log.append([b"b"], counts), log.append([b"c"], counts)]
        assert given == [b"a"], "the writer may have this list still"
        assert [place.entry_id for place in places] == [0, 1, 2]
        log.append([b"d"], [7] if counts is None else None)
        log.check()
        process.ledgers.writer(places[0].ledger_id).sync(2)
        assert [run.entries for run in listener.runs] == [[b"a", b"b"]]
        log.append([b"e"], [7] if counts is None else None)
        assert [run.entries for run in listener.runs] == [[b"a", b"b"]], "readers have this run"
        process.ledgers.sync()
        assert [run.entries for run in listener.runs[1:]] == [[b"c"], [b"d"], [b"e"]]
        each = 1 if counts is None else 2
        assert [run.base_index for run in listener.runs[1:3]] == [2 * each, 3 * each]
        log.check()
        await process.logs.close()

    asyncio.run(story())


def test_entries_of_two_milliseconds_are_two_runs() -> None:
    async def story() -> None:
        process = Process(ledgers=FakeLedgers(auto_sync=False))
        log, listener = await process.open()
        log.append([b"a"], None)
        process.clock._now_ms += 1
        log.append([b"b"], None)
        log.append([b"c", b"d"], None)
        log.append([b"e"], None)
        process.ledgers.sync()
        assert [run.entries for run in listener.runs] == [[b"a"], [b"b"], [b"c", b"d"], [b"e"]]
        await process.logs.close()

    asyncio.run(story())
