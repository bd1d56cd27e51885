"""The time that deletions go by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.clock import HOLD_MS, STEP_MS_MIN, ManualClock, SettledTime

YEAR_MS = 365 * 86_400_000


def test_a_clock_that_nobody_sets_is_believed() -> None:
    clock = ManualClock()
    for _ in range(10):
        clock.advance(86_400_000)
        assert clock.settled_ms() == clock.now_ms()


def test_a_step_ahead_counts_after_an_hour() -> None:
    clock = ManualClock()
    before_ms = clock.now_ms()
    clock.step(YEAR_MS)
    assert clock.settled_ms() == before_ms
    clock.advance(HOLD_MS - 1)
    assert clock.settled_ms() == before_ms + HOLD_MS - 1, "time goes on meanwhile"
    clock.advance(1)
    assert clock.settled_ms() == clock.now_ms()


def test_a_step_that_is_taken_back_never_counts() -> None:
    clock = ManualClock()
    clock.step(YEAR_MS)
    clock.advance(HOLD_MS - 1)
    clock.step(-YEAR_MS)
    assert clock.settled_ms() == clock.now_ms()
    # The next one has an hour of its own.
    clock.step(YEAR_MS)
    clock.advance(HOLD_MS - 1)
    assert clock.settled_ms() == clock.now_ms() - YEAR_MS


def test_two_steps_share_an_hour() -> None:
    """Else a clock that is set again and again would delete nothing any more."""
    clock = ManualClock()
    clock.step(YEAR_MS)
    clock.advance(HOLD_MS // 2)
    clock.step(YEAR_MS)
    clock.advance(HOLD_MS // 2)
    assert clock.settled_ms() == clock.now_ms()


@pytest.mark.parametrize("step_ms", [-YEAR_MS, -1, 1, STEP_MS_MIN - 1])
def test_small_steps_and_those_back_count_at_once(step_ms: int) -> None:
    clock = ManualClock()
    clock.step(step_ms)
    assert clock.settled_ms() == clock.now_ms()


@given(st.lists(st.tuples(st.integers(-(10**11), 10**11), st.integers(0, 10**8)), max_size=30))
def test_it_is_never_ahead_of_the_clock(changes: list[tuple[int, int]]) -> None:
    now_ms, running_ms = 1_700_000_000_000, 5_000
    settled = SettledTime(now_ms, running_ms)
    for step_ms, passed_ms in changes:
        now_ms, running_ms = now_ms + step_ms + passed_ms, running_ms + passed_ms
        said_ms = settled.of(now_ms, running_ms)
        assert said_ms <= now_ms
        # An hour without a step, and it is believed.
        assert SettledTime(now_ms, running_ms).of(now_ms + HOLD_MS, running_ms + HOLD_MS) == now_ms + HOLD_MS
