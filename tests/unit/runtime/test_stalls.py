"""How long the loop kept others waiting."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.observability.metrics import Exposition
from magnetar.runtime.stalls import Lateness, LoopWatch, cause_of, next_look_s


def test_each_look_counts_in_its_bucket() -> None:
    late = Lateness()
    for late_s in (0.0, 0.002, 0.0021, 0.3, 7.0):
        late.add(late_s)
    assert late.counts == [2, 1, 0, 0, 0, 0, 0, 1, 0, 1]
    assert late.max_s == 7.0
    assert late.sum_s == pytest.approx(7.3041)


@pytest.mark.parametrize(
    ("computing_s", "collecting_s", "cause"),
    [
        (0.9, 0.6, "garbage collection"),
        (0.9, 0.1, "one piece of work took so long"),
        (0.1, 0.0, "the process waited for the processor or for a device"),
    ],
)
def test_causes(computing_s: float, collecting_s: float, cause: str) -> None:
    assert cause_of(1.0, computing_s, collecting_s) == cause


def test_an_idle_process_is_woken_less_often() -> None:
    assert next_look_s(0.0001, 0.02) == next_look_s(0.0001, 0.1) == 0.1
    assert next_look_s(0.002, 0.02) == next_look_s(0.02, 0.1) == 0.02


def test_a_running_loop_is_looked_at_until_the_watch_closes() -> None:
    async def run() -> LoopWatch:
        seen = asyncio.Event()
        looks = 0

        def collecting_s() -> float:
            nonlocal looks
            looks += 1
            if looks == 3:
                seen.set()
            return 0.0

        watch = LoopWatch(collecting_s)
        watch.start()
        await seen.wait()
        watch.close()
        return watch

    watch = asyncio.run(run())
    assert watch.late.count >= 2
    out = Exposition()
    list(watch.collect_metrics(out))
    text = out.render()
    assert "# TYPE magnetar_loop_stall_seconds histogram" in text
    assert f"magnetar_loop_stall_seconds_count {watch.late.count}" in text
