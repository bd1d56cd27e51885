"""Work in Python beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from magnetar.runtime import pacing
from magnetar.runtime.fair_places import FairPlaces
from magnetar.runtime.interruption import TookTooLongError
from magnetar.runtime.pacing import REST_S, SLICE_S, WorkPace, paced


class Times:
    """Clocks that a test moves."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 7.0
        self.rests: list[float] = []

    def pace(self, limit_s: float) -> WorkPace:
        return WorkPace(limit_s, self.rest, lambda: self.now_s, lambda: self.cpu_s)

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_s += seconds

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds


def test_work_rests_after_each_slice() -> None:
    times = Times()
    pace = times.pace(60)
    for _ in range(100):
        times.work(SLICE_S * 0.6)
        pace.step()
    assert times.rests == [REST_S] * 50


def test_work_ends_when_its_processor_time_is_over() -> None:
    """Not when others have had the processor meanwhile."""
    times = Times()
    pace = times.pace(0.01)
    times.now_s += 10
    pace.step()
    times.work(0.009)
    pace.step()
    times.work(0.0011)
    with pytest.raises(TookTooLongError):
        pace.step()


def test_owners_are_served_in_turn_in_one_thread_that_is_not_the_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "_PLACES", FairPlaces(1, waiting_max=10))
    begun: list[str] = []
    may_end = threading.Semaphore(0)

    def work(owner: str, pace: WorkPace) -> int:
        begun.append(owner)
        assert may_end.acquire(timeout=60)
        pace.step()
        return threading.get_ident()

    async def scenario() -> None:
        calls = [
            asyncio.ensure_future(paced(owner, 60, lambda pace, owner=owner: work(owner, pace)))  # type: ignore[misc]
            for owner in ("greedy", "greedy", "greedy", "modest")
        ]
        await asyncio.sleep(0)
        for _ in calls:
            may_end.release()
        (thread,) = set(await asyncio.gather(*calls))
        assert thread != threading.get_ident()
        assert begun == ["greedy", "greedy", "modest", "greedy"]

    asyncio.run(scenario())


def test_an_error_is_its_callers_and_the_next_call_runs() -> None:
    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await paced("one", 60, lambda pace: 1 // 0)
        assert await paced("one", 60, lambda pace: 7) == 7

    asyncio.run(scenario())
