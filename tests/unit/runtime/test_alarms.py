"""Alarms behind one timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import pytest

from magnetar.base.clock import ManualClock
from magnetar.runtime import loop as event_loop
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.clock import SystemClock


def in_loop(story: Callable[[Alarms, ManualClock], None]) -> None:
    async def run() -> None:
        clock = ManualClock(0)
        alarms = Alarms(clock)
        story(alarms, clock)
        alarms.close()

    asyncio.run(run())


def test_alarms_ring_in_order_and_once() -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[str] = []
        alarms.set("b", 20, lambda: rung.append("b"))
        alarms.set("a", 10, lambda: rung.append("a"))
        alarms.set("c", 30, lambda: rung.append("c"))
        clock.advance(25)
        alarms.ring()
        alarms.ring()
        assert rung == ["a", "b"]
        assert len(alarms) == 1

    in_loop(story)


def test_a_key_has_one_alarm() -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[int] = []
        for i in range(500):
            alarms.set("key", 1_000 - i, lambda i=i: rung.append(i))  # type: ignore[misc]  # bound now
        alarms.set("other", 5_000, lambda: rung.append(-1))
        alarms.discard("other")
        alarms.discard("unknown")
        clock.advance(10_000)
        alarms.ring()
        assert rung == [499]

    in_loop(story)


@pytest.mark.parametrize("step_ms", [-3_600_000, 0, 3_600_000])
def test_waits_last_as_long_as_they_should_when_the_clock_is_set(step_ms: int) -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[str] = []
        clock.advance(7_200_000)
        alarms.after("a", 20, lambda: rung.append("a"))
        alarms.after("b", 10, lambda: rung.append("b"))
        clock.step(step_ms)
        clock.advance(19)
        alarms.ring()
        assert rung == ["b"]
        clock.advance(1)
        alarms.ring()
        assert rung == ["b", "a"]

    in_loop(story)


def test_a_key_has_one_alarm_of_both_clocks() -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[str] = []
        alarms.set("key", 10, lambda: rung.append("at"))
        alarms.after("key", 20, lambda: rung.append("after"))
        alarms.after("other", 5, lambda: rung.append("other"))
        alarms.set("other", 30, lambda: rung.append("other, at"))
        assert len(alarms) == 2
        clock.advance(20)
        alarms.ring()
        assert rung == ["after"]
        alarms.discard("other")
        assert len(alarms) == 0

    in_loop(story)


def test_an_alarm_that_sets_itself_anew_waits_for_the_next_round() -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[int] = []

        def again() -> None:
            rung.append(1)
            alarms.set("key", 0, again)

        alarms.set("key", 0, again)
        alarms.ring()
        assert rung == [1]

    in_loop(story)


def test_one_failure_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def story(alarms: Alarms, clock: ManualClock) -> None:
        rung: list[int] = []
        alarms.set("a", 0, lambda: rung[7])  # type: ignore[arg-type]  # it raises
        alarms.set("b", 1, lambda: rung.append(1))
        clock.advance(1)
        with caplog.at_level(logging.CRITICAL, "magnetar.runtime"):
            alarms.ring()
        assert rung == [1]

    in_loop(story)


@pytest.mark.leaves("uvloop keeps the descriptors of a loop for the next one")
@pytest.mark.parametrize("started", [asyncio.run, event_loop.run])
def test_waits_shorter_than_the_loop_counts_end(started: Callable[..., None]) -> None:
    async def run() -> None:
        alarms, rung = Alarms(SystemClock()), asyncio.Queue[int]()
        for number in range(200):
            alarms.after(number, number % 7 / 10, partial(rung.put_nowait, number))
        async with asyncio.timeout(60):
            assert sorted([await rung.get() for _ in range(200)]) == list(range(200))
        alarms.close()

    started(run())


def test_the_timer_rings() -> None:
    async def run() -> None:
        clock = SystemClock()
        alarms = Alarms(clock)
        rung = asyncio.Event()
        alarms.set("late", clock.now_ms() + 60_000, lambda: None)
        alarms.set("soon", clock.now_ms() + 1, rung.set)
        await asyncio.wait_for(rung.wait(), 60)
        rung.clear()
        alarms.after("later", 90_000, lambda: None)
        alarms.after("sooner", 1, rung.set)
        await asyncio.wait_for(rung.wait(), 60)
        alarms.close()

    asyncio.run(run())
