"""Work beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from magnetar.runtime.threads import in_turn


def test_calls_in_turn_run_one_after_another_in_their_order() -> None:
    under_way: list[int] = []
    begun: list[int] = []
    may_end = threading.Semaphore(0)

    def work(number: int) -> int:
        under_way.append(number)
        begun.append(number)
        assert may_end.acquire(timeout=60)
        assert under_way == [number]
        under_way.remove(number)
        return number

    async def scenario() -> None:
        calls = [asyncio.ensure_future(in_turn(work, number)) for number in range(3)]
        for _ in calls:
            may_end.release()
        assert await asyncio.gather(*calls) == [0, 1, 2]
        assert begun == [0, 1, 2]

    asyncio.run(scenario())


def test_an_error_in_turn_is_its_callers_and_the_next_call_runs() -> None:
    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await in_turn(lambda: 1 // 0)
        assert await in_turn(lambda: 7) == 7

    asyncio.run(scenario())
