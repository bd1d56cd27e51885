"""Places for dear work: bounded, fair, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.runtime.fair_places import CrowdedError, FairPlaces


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


class Work:
    """Takes places, and holds them until told."""

    def __init__(self, places: FairPlaces) -> None:
        self._places = places
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, owner: str, name: str) -> asyncio.Task[None]:
        self._ends[name] = asyncio.Event()

        async def work() -> None:
            async with self._places.take(owner):
                self.begun.append(name)
                await self._ends[name].wait()

        self._tasks.append(asyncio.create_task(work()))
        return self._tasks[-1]

    async def cancel(self) -> None:
        """Ends what is still there."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def with_work(places: int, story: Callable[[Work], Coroutine[Any, Any, None]], waiting_max: int = 9) -> None:
    async def begin() -> None:
        work = Work(FairPlaces(places, waiting_max=waiting_max))
        try:
            await story(work)
        finally:
            await work.cancel()

    run(begin())


def test_owners_take_turns() -> None:
    async def story(work: Work) -> None:
        for name in ("a1", "a2", "a3", "a4", "b1"):
            work.start(name[0], name)
            await turns()
        assert work.begun == ["a1"]
        for ended, next_ in (("a1", "a2"), ("a2", "b1"), ("b1", "a3"), ("a3", "a4")):
            await work.end(ended)
            assert work.begun[-1] == next_

    with_work(1, story)


def test_an_owner_has_a_bound_and_others_do_not_pay_for_it() -> None:
    async def story(work: Work) -> None:
        started = [work.start("a", f"a{number}") for number in range(4)]
        await turns()
        with pytest.raises(CrowdedError):
            await started[3]
        other = work.start("b", "b")
        await turns()
        assert not other.done()

    with_work(1, story, waiting_max=2)


def test_who_gives_up_keeps_no_place() -> None:
    async def story(work: Work) -> None:
        work.start("a", "a1")
        await turns()
        waiting, given = work.start("b", "b1"), work.start("c", "c1")
        await turns()
        waiting.cancel()
        await turns()
        # The place is given in the very turn in which its owner gives up.
        work._ends["a1"].set()
        await asyncio.sleep(0)
        given.cancel()
        await turns()
        last = work.start("d", "d1")
        await turns()
        assert work.begun[-1] == "d1"
        await work.end("d1")
        assert last.done()

    with_work(1, story)
