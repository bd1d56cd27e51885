"""What `magnetar bench` counts."""

from __future__ import annotations

from magnetar.cli.load.latencies import Latencies


def test_percentiles_are_times_that_so_many_stay_within() -> None:
    latencies = Latencies()
    for millis in range(1, 1001):
        latencies.add(millis * 1_000_000)
    assert latencies.milliseconds() == {"p50_ms": 500.0, "p99_ms": 990.0, "p99.9_ms": 999.0, "max_ms": 1000.0}


def test_times_have_three_digits_and_never_run_backwards() -> None:
    latencies = Latencies()
    latencies.add(123_456_789, 3)
    latencies.add(-5)
    assert len(latencies) == 4
    assert latencies.milliseconds() == {"p50_ms": 123.0, "p99_ms": 123.0, "p99.9_ms": 123.0, "max_ms": 123.0}


def test_without_messages_there_are_no_times() -> None:
    assert set(Latencies().milliseconds().values()) == {None}
