"""Bounds of attacks."""

from __future__ import annotations

import math

import pytest
from bench.hostile_bounds import Bound, bound_of

FOUND = {"alone_p99_ms": 2.0, "beside_p99_ms": 19.0, "before_mb": 50.0, "after_mb": 60.0, "gc_max_ms": 3.0}


def test_what_is_within_its_bound_is_not_broken() -> None:
    assert Bound().broken(FOUND) == []
    assert Bound().broken(FOUND | {"gc_max_ms": math.nan}) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"beside_p99_ms": 21.0}, "p99 beside, ms: 21.0, 20.0 are allowed"),
        ({"alone_p99_ms": 10.0, "beside_p99_ms": 41.0}, "p99 beside, ms: 41.0, 40.0 are allowed"),
        ({"after_mb": 115.0}, "more memory, MB: 65.0, 64.0 are allowed"),
        ({"longest_turn_ms": 21.0}, "longest turn, ms: 21.0, 20.0 are allowed"),
        ({"gc_max_ms": 25.2}, "longest collection, ms: 25.2, 20.0 are allowed"),
    ],
)
def test_a_broken_bound_is_told_with_its_figures(more: dict[str, float], what: str) -> None:
    assert Bound().broken(FOUND | more) == [what]


def test_a_story_without_a_bound_of_its_own_has_the_usual_one() -> None:
    assert bound_of("pings") == Bound()
    assert bound_of("calls") != Bound()
