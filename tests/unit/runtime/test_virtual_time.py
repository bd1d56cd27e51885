"""Time that passes as fast as it can."""

from __future__ import annotations

import asyncio
import time

from magnetar.runtime.tasks import gathered, pause
from magnetar.runtime.virtual_time import VirtualTime


def test_it_governs_the_clocks_of_the_process_and_gives_them_back() -> None:
    before = time.time
    passing = VirtualTime(5_000)
    with passing.governs():
        time.sleep(2.5)  # of this time alone: it returns at once
        assert (time.time(), time.monotonic(), time.time_ns()) == (7.5, 2.5, 7_500_000_000)
        assert passing.now_ms() == 7_500
    assert time.time is before


def test_waits_of_a_loop_take_no_time_and_keep_their_order() -> None:
    passing = VirtualTime(0)
    seen: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await pause(seconds)
        seen.append((name, round(passing.now_s(), 3)))

    async def story() -> None:
        await gathered((wait("late", 3600), wait("soon", 0.5), wait("middle", 2)))
        try:
            async with asyncio.timeout(86_400):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append(("never", round(passing.now_s())))

    passing.run(story())
    assert seen == [("soon", 0.5), ("middle", 2), ("late", 3600), ("never", 90_000)]


def test_a_wait_for_a_moment_reaches_it() -> None:
    passing = VirtualTime(0)
    passing.pass_s(0.1 + 0.2)
    assert passing.now_s() >= 0.3
