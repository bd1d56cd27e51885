"""Latency counts from the intended time, and percentiles are those of the recorded times."""

from __future__ import annotations

import numpy as np
import pytest
from bench.histogram import Latencies, due_count, intended_ns, median_metrics
from bench.latency import Arrivals


def test_messages_are_due_at_even_steps_from_the_start() -> None:
    assert intended_ns(1_000, 4, 0, 5).tolist() == [
        1_000,
        250_001_000,
        500_001_000,
        750_001_000,
        1_000_001_000,
    ]
    assert intended_ns(0, 3, 1, 2).tolist() == [333_333_333, 666_666_666]


@pytest.mark.parametrize("rate", [1, 3, 7, 1000, 9_999, 10_000])
def test_due_counts_agree_with_due_times(rate: int) -> None:
    due = intended_ns(5, rate, 0, 50).tolist()
    assert due_count(5, rate, 4) == 0
    for i, time_ns in enumerate(due):
        assert due_count(5, rate, time_ns) == i + 1
        assert due_count(5, rate, time_ns - 1) == i


def test_a_stall_is_charged_to_every_message_that_was_due_in_it() -> None:
    # 1,000/s for 10 s; everything is answered at once, but for a stall of 1 s in which nothing is answered.
    # Measured from the time of sending by a generator that waits, one message in 10,000 would have been slow.
    count = 10_000
    due = intended_ns(0, 1000, 0, count)
    arrivals = Arrivals(count)
    for i, time_ns in enumerate(due.tolist()):
        if 4_000 <= i < 5_000:
            continue
        arrivals.until(i + 1, time_ns + 100_000)
    latencies = Latencies()
    latencies.record(arrivals.latencies(due[:, None], 0))
    found = latencies.milliseconds()
    assert found["p50_ms"] == pytest.approx(0.1, rel=0.01)
    assert found["p99_ms"] == pytest.approx(900, rel=0.01)
    assert found["max_ms"] == pytest.approx(1000.1)
    assert len(latencies) == count


def test_messages_before_the_measured_time_and_without_an_answer_do_not_count() -> None:
    due = intended_ns(0, 1000, 0, 10)
    arrivals = Arrivals(10)
    arrivals.until(8, 9_000_000)
    assert arrivals.latencies(due[:, None], 5).tolist() == [4_000_000, 3_000_000, 2_000_000]


def test_every_message_of_an_entry_waits_from_its_own_time() -> None:
    due = intended_ns(0, 1000, 0, 6).reshape(2, 3)
    arrivals = Arrivals(2)
    arrivals.until(2, 5_000_000)
    assert arrivals.latencies(due, 1).tolist() == [2_000_000, 1_000_000, 0]


def test_percentiles_are_those_of_the_times() -> None:
    times = np.random.default_rng(1).integers(1_000, 50_000_000, 10_000)
    latencies = Latencies()
    latencies.record(times)
    found = latencies.milliseconds("x_")
    assert found["x_p99_ms"] == pytest.approx(np.percentile(times, 99) / 1e6, rel=0.005)
    assert found["x_max_ms"] == times.max() / 1e6
    assert latencies.encoded()


def test_nothing_and_negative_times() -> None:
    latencies = Latencies()
    latencies.record(np.array([], dtype=np.int64))
    assert latencies.milliseconds()["max_ms"] == 0
    with pytest.raises(ValueError, match="negative"):
        latencies.record(np.array([-1], dtype=np.int64))


def test_the_median_takes_each_metric_from_the_runs_that_have_it() -> None:
    assert median_metrics([{"a": 1, "b": 5}, {"a": 9}, {"a": 2}]) == {"a": 2, "b": 5}
