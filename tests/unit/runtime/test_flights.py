"""Work that several callers wait for."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.runtime.flights import NextFlight, OneAtATime


def test_one_does_it_and_the_others_look_again() -> None:
    async def story() -> None:
        flights, gate, done = OneAtATime(), asyncio.Event(), list[str]()

        async def work() -> None:
            await gate.wait()
            done.append("once")

        async def caller() -> bool:
            did = False
            while not done:
                did = await flights.run("key", work)
            return did

        callers = [asyncio.ensure_future(caller()) for _ in range(3)]
        await asyncio.sleep(0)
        callers[2].cancel()
        gate.set()
        assert await asyncio.gather(*callers[:2]) == [True, False]
        assert done == ["once"]

    asyncio.run(asyncio.wait_for(story(), 10))


def test_a_failure_is_of_the_one_that_does_it() -> None:
    async def story() -> None:
        flights, tries = OneAtATime(), list[int]()

        async def work() -> None:
            await asyncio.sleep(0)
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("the first try")

        first = asyncio.ensure_future(flights.run(1, work))
        second = asyncio.ensure_future(flights.run(1, work))
        with pytest.raises(ValueError, match="first try"):
            await first
        assert not await second
        assert await flights.run(1, work)

    asyncio.run(asyncio.wait_for(story(), 10))


def test_callers_share_work_that_begins_after_their_calls() -> None:
    async def story() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        begun = list[int]()

        async def work() -> int:
            begun.append(len(begun))
            number = begun[-1]
            await gates[number].wait()
            return number

        flight = NextFlight(work)
        first = [asyncio.ensure_future(flight.landing()) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert begun == [0]
        second = [asyncio.ensure_future(flight.landing()) for _ in range(16)]
        await asyncio.sleep(0)
        second.pop().cancel()
        gates[0].set()
        assert await asyncio.gather(*first) == [0] * 3
        gates[1].set()
        assert await asyncio.gather(*second) == [1] * 15
        assert begun == [0, 1]
        gates[2].set()
        assert await flight.landing() == 2
        assert flight._running is None, "its result would stay"

    asyncio.run(asyncio.wait_for(story(), 10))


def test_shared_work_that_fails_fails_those_that_share_it() -> None:
    async def story() -> None:
        tries = list[int]()

        async def work() -> int:
            await asyncio.sleep(0)
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("the first try")
            return 7

        flight = NextFlight(work)
        first = [asyncio.ensure_future(flight.landing()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = asyncio.ensure_future(flight.landing())
        found = await asyncio.gather(*first, return_exceptions=True)
        assert [str(each) for each in found] == ["the first try"] * 2
        assert await later == 7

    asyncio.run(asyncio.wait_for(story(), 10))
