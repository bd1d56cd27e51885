"""Names are sorted in steps."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

import pytest

from magnetar.base import sort_steps
from magnetar.base.sort_steps import sorting


def ended(steps: Generator[None, None, list[str]]) -> tuple[list[str], int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 21, 137, 1_000])
@pytest.mark.parametrize("order", ["chance", "sorted", "reversed", "equal"])
def test_it_sorts(count: int, order: str) -> None:
    numbers = list(range(count))
    if order == "chance":
        random.Random(count).shuffle(numbers)
    names = [str(number // 3 if order == "equal" else number) for number in numbers]
    if order in ("sorted", "reversed"):
        names.sort(reverse=order == "reversed")
    given = list(names)
    found, steps = ended(sorting(names, 10))
    assert found == sorted(given)
    assert names == given
    assert (steps == 0) == (count <= 10)


def test_no_step_sorts_many(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(names: Sequence[str]) -> list[str]:
        sizes.append(len(names))
        return sorted(names)

    monkeypatch.setattr(sort_steps, "sorted", counted, raising=False)
    names = [str(number) for number in range(5_000)]
    random.Random(1).shuffle(names)
    sizes.clear()
    steps = sorting(names, 100)
    done = 0
    found: list[str] = []
    while not found:
        before = len(sizes)
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
        assert len(sizes) - before <= 1
        done += 1
    assert found == sorted(names)
    assert max(sizes) <= 200
    assert done > 100
