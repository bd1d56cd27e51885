"""Background work: ends with its group, reports its failures, is shared where it should be."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.runtime import tasks
from magnetar.runtime.tasks import Rounds, SingleFlight, TaskGroup, called_back, happens_within, yield_loop


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_failure_is_logged_and_takes_nobody_along(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        done = asyncio.Event()

        async def fails() -> None:
            raise ValueError("of this one")

        async def goes_on() -> None:
            await turns()
            done.set()

        group.spawn(fails())
        group.spawn(goes_on())
        await done.wait()
        await group.close()

    with caplog.at_level(logging.ERROR):
        run(story())
    (record,) = caplog.records
    assert "tests: background work failed" in record.message
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "of this one"


def test_a_swallowed_cancellation_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_PATIENCE_S", 0.01)

    async def story() -> None:
        group = TaskGroup("tests")
        told = 0

        async def work() -> None:
            nonlocal told
            while told < 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    told += 1

        group.spawn(work())
        await turns()
        await group.close()
        assert told == 2

    asyncio.run(story())


def test_close_cancels_and_waits() -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        cleaned_up = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned_up.append(True)

        group.spawn(work())
        await turns()
        await group.close()
        assert cleaned_up == [True]
        group.spawn(work())  # discarded unstarted, without a warning
        await turns()
        assert cleaned_up == [True]
        await group.close()

    run(story())


def test_drain_waits_without_cancelling() -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        gate = asyncio.Event()
        ended = []

        async def work() -> None:
            await gate.wait()
            ended.append(True)

        group.spawn(work())
        await group.drain(0.0)
        assert ended == []
        gate.set()
        await group.drain(10.0)
        assert ended == [True]
        await group.drain(10.0)
        await group.close()

    run(story())


def test_periodic_work_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        rounds = 0
        enough = asyncio.Event()

        async def work() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                raise ValueError("the first round")
            if rounds == 3:
                enough.set()

        group.every(0.0, work)
        await enough.wait()
        await group.close()

    with caplog.at_level(logging.ERROR):
        run(story())
    assert [record.message for record in caplog.records] == ["tests: periodic work failed"]


def test_callers_share_one_attempt() -> None:
    async def story() -> None:
        flight: SingleFlight[int] = SingleFlight()
        gate = asyncio.Event()
        attempts = 0

        async def attempt() -> int:
            nonlocal attempts
            attempts += 1
            await gate.wait()
            return attempts

        callers = [asyncio.ensure_future(flight.run("key", attempt)) for _ in range(5)]
        other = asyncio.ensure_future(flight.run("other", attempt))
        await turns()
        assert attempts == 2
        gate.set()
        assert len(set(await asyncio.gather(*callers))) == 1
        await other
        assert await flight.run("key", attempt) == 3, "what has ended is not remembered"

    run(story())


def test_an_attempt_that_has_just_ended_is_not_joined() -> None:
    # Its result came back at once, so a caller that asked until something was done never let the loop go on.
    async def story() -> None:
        flight: SingleFlight[int] = SingleFlight()
        attempts = 0

        async def attempt() -> int:
            nonlocal attempts
            attempts += 1
            return attempts

        async def asks_until_it_is_two() -> int:
            for _ in range(10):
                if (found := await flight.run("key", attempt)) >= 2:
                    return found
            raise AssertionError("it always gets the first attempt's result")

        first = asyncio.ensure_future(flight.run("key", attempt))
        await asyncio.sleep(0)
        # Behind the attempt, which is done in this turn, and before its end is noted in the next.
        second = asyncio.ensure_future(asks_until_it_is_two())
        assert (await first, await second) == (1, 2)

    run(story())


def test_a_failed_attempt_fails_its_callers_and_is_forgotten() -> None:
    async def story() -> None:
        flight: SingleFlight[str] = SingleFlight()

        async def fails() -> str:
            await asyncio.sleep(0)
            raise ValueError("no")

        async def works() -> str:
            return "yes"

        results = await asyncio.gather(
            flight.run("key", fails), flight.run("key", fails), return_exceptions=True
        )
        assert [str(result) for result in results] == ["no", "no"]
        assert await flight.run("key", works) == "yes"

    run(story())


def test_a_cancelled_caller_leaves_the_attempt_to_the_others() -> None:
    async def story() -> None:
        flight: SingleFlight[str] = SingleFlight()
        gate = asyncio.Event()

        async def attempt() -> str:
            await gate.wait()
            return "done"

        first = asyncio.ensure_future(flight.run("key", attempt))
        second = asyncio.ensure_future(flight.run("key", attempt))
        await turns()
        first.cancel()
        await turns()
        assert first.cancelled()
        gate.set()
        assert await second == "done"

    run(story())


def test_an_attempt_that_fails_after_all_callers_left_is_not_a_warning() -> None:
    async def story() -> None:
        flight: SingleFlight[str] = SingleFlight()
        gate = asyncio.Event()
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

        async def fails() -> str:
            await gate.wait()
            raise ValueError("unheard")

        caller = asyncio.ensure_future(flight.run("key", fails))
        await turns()
        caller.cancel()
        await turns()
        gate.set()
        await turns()
        gc.collect()
        assert reports == []

    run(story())


def test_rounds_asked_for_meanwhile_share_one_more() -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        seen: list[str] = []
        gate = asyncio.Event()

        async def work() -> None:
            seen.append("begins")
            await gate.wait()
            await yield_loop()
            seen.append("ends")

        rounds = Rounds(work, group.spawn)
        rounds.ask()
        await turns()
        rounds.ask()
        rounds.ask()
        gate.set()
        await turns(20)
        assert seen == ["begins", "ends", "begins", "ends"]
        rounds.ask()
        await turns(20)
        assert len(seen) == 6
        await group.close()

    run(story())


def test_rounds_go_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        group = TaskGroup("tests")
        count = 0

        async def work() -> None:
            nonlocal count
            count += 1
            raise ValueError("of this round")

        rounds = Rounds(work, group.spawn)
        for _ in range(2):
            rounds.ask()
            await turns()
        assert count == 2
        await group.close()

    with caplog.at_level(logging.ERROR):
        run(story())
    assert len(caplog.records) == 2


def test_an_event_or_a_time_whatever_comes_first() -> None:
    async def story() -> None:
        event = asyncio.Event()
        assert not await happens_within(event, 0.001)
        waiting = asyncio.create_task(happens_within(event, 10))
        await turns()
        event.set()
        assert await waiting
        assert await happens_within(event, 0.001)

    run(story())


def test_a_cancellation_in_the_turn_of_the_event_is_not_lost() -> None:
    async def story() -> None:
        event = asyncio.Event()

        async def work() -> None:
            while True:
                await happens_within(event, 60)
                event.clear()

        for turns_later in range(4):
            event.clear()
            task = asyncio.create_task(work())
            await turns()
            event.set()
            await turns(turns_later)
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.cancelled()

    asyncio.run(story())


def test_who_waits_to_be_called_back_may_leave() -> None:
    async def story() -> list[str]:
        calls: list[Callable[[], None]] = []
        told = []

        async def wait(name: str) -> None:
            await called_back(calls.append)
            told.append(name)

        stays, leaves = asyncio.create_task(wait("stays")), asyncio.create_task(wait("leaves"))
        await turns()
        assert len(calls) == 2
        leaves.cancel()
        await asyncio.wait((leaves,))
        for call in calls:
            call()
        await stays
        return told

    assert asyncio.run(story()) == ["stays"]


def test_a_flight_ends_with_its_owner() -> None:
    async def scenario() -> None:
        owner = TaskGroup("owner")
        flights: SingleFlight[None] = SingleFlight(owner)

        async def waits() -> None:
            await asyncio.get_running_loop().create_future()

        caller = asyncio.ensure_future(flights.run("it", waits))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert flights.running("it"), "a caller that left does not end it"
        await owner.close()
        assert not flights.running("it")
        with pytest.raises(asyncio.CancelledError):
            await flights.run("late", waits)

    asyncio.run(scenario())
