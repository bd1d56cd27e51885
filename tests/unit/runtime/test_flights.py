"""Work that several callers wait for."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.runtime.flights import OneAtATime


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
