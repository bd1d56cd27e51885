"""A clock that is set is noticed."""

from __future__ import annotations

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.clock_watch import ClockWatch


def test_steps_are_counted_and_said_and_time_that_passes_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    watch = ClockWatch(clock)
    for step_ms in (0, 500, 3_600_000, -3_600_500):
        clock.step(step_ms)
        clock.advance(3_600_000)
        watch.look()
        watch.look()
    assert watch.steps == 2
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "the machine's clock was set 3600.5 s ahead",
        "the machine's clock was set 3600.5 s back",
    ]
    assert watch.running_s == 4 * 3_600
