"""Sorts many names in steps of bounded work (pure).

Sorting 100,000 names takes some 40 ms in one go. Here runs of a few thousand are sorted, and then merged two
by two, a slice of both in a step: names that are smaller than all that follows in either run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Sequence


def sorting(names: Sequence[str], most: int) -> Generator[None, None, list[str]]:
    """Returns the names in a new list, sorted; yields after each step, which sorts at most twice `most` of
    them. No more than `most` are sorted at once, without a step."""
    runs = deque(sorted(names[at : at + most]) for at in range(0, min(len(names), most), most))
    for at in range(most, len(names), most):
        yield
        runs.append(sorted(names[at : at + most]))
    while len(runs) > 1:
        runs.append((yield from _merging(runs.popleft(), runs.popleft(), most)))
    return runs.pop() if runs else []


def _merging(left: list[str], right: list[str], most: int) -> Generator[None, None, list[str]]:
    merged: list[str] = []
    i = j = 0
    while i < len(left) and j < len(right):
        yield
        # Up to this one, both have no more than `most`, and nothing that follows is smaller.
        last = min(left[min(i + most, len(left)) - 1], right[min(j + most, len(right)) - 1])
        to_i = bisect_right(left, last, i, min(i + most, len(left)))
        to_j = bisect_right(right, last, j, min(j + most, len(right)))
        merged += sorted(left[i:to_i] + right[j:to_j])
        i, j = to_i, to_j
    merged += left[i:]
    merged += right[j:]
    return merged
