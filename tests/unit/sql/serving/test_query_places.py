"""Places of queries: how many, which callers wait, what ends one, and that no place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.query_bounds import QueryBounds
from magnetar.sql.serving import query_frames as frames
from magnetar.sql.serving import query_places
from magnetar.sql.serving.query_frames import ARROW, JSON_LINES, WorkerReading
from magnetar.sql.serving.query_places import AskedQuery, QueryPlaces, RunningQuery
from magnetar.sql.serving.serving_errors import QueriesBusyError, QueryFailedError
from support.queries import WrittenProcesses, result, said
from support.waiting import eventually

T = "persistent://public/default/t"
READING = WorkerReading(service_url="pulsar://h:1", admin_url="http://h:2", token="t")


def asked(owner: str = "ada", *, form: str = JSON_LINES, seconds: float | None = None) -> AskedQuery:
    return AskedQuery(owner=owner, statement="SELECT 1", form=form, seconds_max=seconds)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(timed())


async def body(query: RunningQuery) -> bytes:
    got: list[bytes] = []
    await collect(query, got)
    return b"".join(got)


async def collect(query: RunningQuery, got: list[bytes]) -> None:
    async for piece in query.pieces():
        got += [piece]


def test_a_query_from_its_statement_to_its_end() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T, after=result(b"a\n", b"b\n"))
        places = processes.places()
        query = await places.begin(asked())
        assert query.topics == [T]
        assert not processes.read, "nothing is read before the rights are known"
        await query.read(READING)
        assert query.engine == "E 1"
        assert await body(query) == b"a\nb\n"
        assert query.told["rows"] == 2
        query.close()
        query.close()
        assert places.running == 0
        assert processes.made[0].killed, "a process knows of one caller only"
        await places.close()

    run(story)


def test_callers_wait_for_a_place_and_too_many_are_refused() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places(QueryBounds(queries_max=1))
        first = await places.begin(asked())
        waiting = [asyncio.create_task(places.begin(asked())) for _ in range(query_places.WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(QueriesBusyError, match="1 queries run, and 4 of ada wait"):
            await places.begin(asked())
        bob = asyncio.create_task(places.begin(asked("bob")))
        await asyncio.sleep(0)
        first.close()
        (await waiting[0]).close()
        (await bob).close()
        for each in waiting[1:]:
            (await each).close()
        assert places.running == 0
        await places.close()

    run(story)


def test_who_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_places, "WAIT_S", 0.001)

    async def story() -> None:
        places = WrittenProcesses(T).places(QueryBounds(queries_max=1))
        first = await places.begin(asked())
        with pytest.raises(QueriesBusyError, match="none ended"):
            await places.begin(asked())
        first.close()
        (await places.begin(asked())).close()
        await places.close()

    run(story)


def test_time_ends_a_query_whose_client_does_not_read() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places(QueryBounds(queries_max=1))
        query = await places.begin(asked(seconds=0.01))
        await query.read(READING)
        # Nothing asks for the rows. The place is free all the same, and the process is gone.
        (await places.begin(asked("bob"))).close()
        assert processes.made[0].killed
        with pytest.raises(QueryFailedError, match=r"took longer than 0\.01 s") as told:
            await body(query)
        assert told.value.status == 422
        query.close()
        assert places.running == 0
        await places.close()

    run(story)


def test_the_start_of_a_process_is_no_time_of_the_query() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        processes.ready = False
        places = processes.places()
        task = asyncio.create_task(places.begin(asked(seconds=0.01)))
        await eventually(lambda: bool(processes.made))
        began_s = asyncio.get_running_loop().time()
        # Longer than the query may take: it has not begun.
        await eventually(lambda: asyncio.get_running_loop().time() > began_s + 0.03)
        assert not processes.made[0].heard
        processes.made[0].write((frames.READY, b""))
        query = await task
        assert query.topics == [T]
        query.close()
        await places.close()

    run(story)


def test_a_process_that_is_never_ready_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_places, "START_S", 0.01)

    async def story() -> None:
        processes = WrittenProcesses(T)
        processes.ready = False
        places = processes.places(QueryBounds(queries_max=1))
        with pytest.raises(QueryFailedError, match="no process was ready") as told:
            await places.begin(asked())
        assert told.value.status == 503
        assert processes.made[0].killed
        assert places.running == 0
        # It is not taken for the next one either.
        processes.ready = True
        (await places.begin(asked())).close()
        await places.close()

    run(story)


def test_memory_ends_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_places, "LOOK_S", 0)

    async def story() -> None:
        processes = WrittenProcesses(T, after=result()[:1])
        places = processes.places(QueryBounds(memory_mib=500))
        query = await places.begin(asked())
        processes.made[0].mib = 501
        with pytest.raises(QueryFailedError, match="more than 500 MiB"):
            await query.read(READING)
        assert processes.made[0].killed
        assert places.running == 0
        await places.close()

    run(story)


def test_errors_of_the_process_have_their_status() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T, after=[said(frames.ERROR, {"status": 404, "reason": "no topic t"})])
        places = processes.places()
        query = await places.begin(asked())
        with pytest.raises(QueryFailedError, match="no topic t") as told:
            await query.read(READING)
        assert told.value.status == 404
        query.close()
        await places.close()

    run(story)


def test_a_part_of_a_result_never_looks_whole() -> None:
    async def story() -> None:
        after = [*result(b"a\n")[:-1], said(frames.ERROR, {"status": 503, "reason": "rows are gone"})]
        places = WrittenProcesses(T, after=after).places()
        for form, last in ((JSON_LINES, b'{"error": "rows are gone"}\n'), (ARROW, b"")):
            query = await places.begin(asked(form=form))
            await query.read(READING)
            got: list[bytes] = []
            with pytest.raises(QueryFailedError, match="rows are gone"):
                await collect(query, got)
            assert b"".join(got) == b"a\n" + last
            query.close()
        await places.close()

    run(story)


def test_a_process_that_dies_is_an_error() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T, after=[None])
        places = processes.places()
        query = await places.begin(asked())
        with pytest.raises(QueryFailedError, match="process has ended") as told:
            await query.read(READING)
        assert told.value.status == 500
        query.close()
        await places.close()

    run(story)


def test_a_process_that_cannot_start_gives_the_place_back() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)

        def refuse() -> None:
            raise OSError("no memory")

        processes.started = refuse
        places = processes.places(QueryBounds(queries_max=1))
        for _ in range(3):
            with pytest.raises(QueryFailedError, match="no memory"):
                await places.begin(asked())
        assert places.running == 0
        await places.close()

    run(story)


def test_one_process_is_kept_ready_and_let_go_when_idle() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places()
        (await places.begin(asked())).close()
        await eventually(lambda: len(processes.made) == 2)
        (await places.begin(asked())).close()
        assert len(processes.asked) == 2
        assert [len(each.heard) for each in processes.made[:2]] == [1, 1], "the one that was ready was asked"
        await places.close()
        processes = WrittenProcesses(T)
        places = processes.places(idle_s=0)
        (await places.begin(asked())).close()
        await eventually(lambda: len(processes.made) == 2 and processes.made[1].killed)
        await places.close()

    run(story)


def test_limits_of_a_caller_are_within_those_of_the_broker() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places(QueryBounds(rows_max=100, seconds_max=9, memory_mib=600, queries_max=3))
        for rows, seconds in ((None, None), (7, 3.0), (1000, 100.0)):
            given = AskedQuery(
                owner="ada", statement="SELECT 1", form=ARROW, rows_max=rows, seconds_max=seconds
            )
            (await places.begin(given)).close()
        limits = [(each.rows_max, each.seconds_max, each.memory_mib) for each in processes.asked]
        assert limits == [(100, 9, 344), (7, 3.0, 344), (100, 9, 344)]
        await places.close()

    run(story)


def test_a_broker_that_stops_ends_its_queries() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places(QueryBounds(queries_max=1))
        query = await places.begin(asked())
        await query.read(READING)
        waiting = asyncio.create_task(places.begin(asked()))
        await asyncio.sleep(0)
        await places.close()
        assert all(each.killed for each in processes.made)
        with pytest.raises(QueryFailedError, match="the broker stops"):
            await body(query)
        with pytest.raises(QueryFailedError, match="the broker stops"):
            await waiting
        started = len(processes.made)
        with pytest.raises(QueryFailedError, match="the broker stops"):
            await places.begin(asked())
        assert len(processes.made) == started

    run(story)


def test_a_caller_that_leaves_while_its_process_starts() -> None:
    async def story() -> None:
        processes = WrittenProcesses(T)
        places = processes.places(QueryBounds(queries_max=1))
        first = await places.begin(asked())
        waiting = asyncio.create_task(places.begin(asked()))
        await asyncio.sleep(0)
        first.close()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (await places.begin(asked())).close()
        assert places.running == 0
        await places.close()

    run(story)


def test_places_are_those_of_a_broker() -> None:
    assert QueryPlaces(QueryBounds()).running == 0


def test_an_error_has_a_line_of_its_own_also_behind_a_part_of_a_row() -> None:
    async def story() -> None:
        told = said(frames.ERROR, {"status": 422, "reason": "too much"})
        for piece, between in ((b'{"n": 1}\n{"n', b"\n"), (b'{"n": 1}\n', b"")):
            processes = WrittenProcesses(T, after=[*result(piece)[:-1], told])
            places = processes.places()
            query = await places.begin(asked())
            await query.read(READING)
            got: list[bytes] = []
            with pytest.raises(QueryFailedError, match="too much"):
                await collect(query, got)
            assert b"".join(got) == piece + between + b'{"error": "too much"}\n'
            query.close()
            await places.close()

    run(story)
