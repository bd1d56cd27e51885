"""The loop of simulated processes."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

from sim.cluster.loop import Process, SimLoop
from sim.world import World


def test_a_task_that_is_made_while_a_story_is_tidied_up_begins_before_it_is_cancelled() -> None:
    """It was cancelled before, and what it was given to await was never awaited: another test was told."""
    loop = SimLoop(World("0"))

    async def work() -> None:
        await loop.create_future()

    async def waits(for_work: Coroutine[Any, Any, None]) -> None:
        await for_work

    async def main() -> None:
        loop.create_task(waits(given))

    given = work()
    loop.start(Process("one"), main())
    loop.tidy_up()
    assert inspect.getcoroutinestate(given) == inspect.CORO_CLOSED
