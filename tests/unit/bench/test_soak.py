"""What counts as flat memory."""

from __future__ import annotations

import pytest
from bench.soak import growth, is_flat, slope_mb_per_hour


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0.0),
        ([100.0, 200.0], 0.0),
        ([50.0, 200.0, 210.0], 10.0),
        ([1.0, 90.0, 100.0, 110.0, 120.0, 100.0], 5.0),
    ],
)
def test_growth_compares_the_last_third_with_the_one_before(samples: list[float], expected: float) -> None:
    assert growth(samples) == expected


def test_filling_caches_count_as_flat_and_leaks_do_not() -> None:
    assert is_flat([60.0, 150.0, 220.0, 221.0, 222.0, 221.0])
    assert not is_flat([60.0, 150.0, 220.0, 230.0, 240.0, 250.0])
    assert is_flat([1000.0, 1020.0, 1040.0])
    assert not is_flat([1000.0, 1000.0, 1040.0])


def test_the_slope_is_that_of_the_last_two_thirds() -> None:
    assert slope_mb_per_hour([], 60.0) == 0.0
    assert slope_mb_per_hour([100.0], 60.0) == 0.0
    assert slope_mb_per_hour([10.0, 90.0, 100.0, 101.0, 102.0, 103.0], 60.0) == pytest.approx(60.0)
    assert slope_mb_per_hour([10.0, 90.0, 100.0, 100.0, 100.0, 100.0], 30.0) == 0.0
