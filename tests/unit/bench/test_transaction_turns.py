"""Transactions with the load in turn: what the table says of the slices."""

from __future__ import annotations

import pytest
from bench.transaction_turns import _SHOWN, middle, rows


def slice_of(value: float) -> dict[str, float]:
    return dict.fromkeys(_SHOWN, value)


def test_each_figure_has_medians_and_the_median_of_the_pairs() -> None:
    turns = {
        "ours": [slice_of(each) for each in (30.0, 10.0, 80.0)],
        "theirs": [slice_of(each) for each in (10.0, 10.0, 20.0)],
    }
    first = rows("rate", turns)[0]
    assert first == ["rate", _SHOWN[0], "30 (10 to 80)", "10 (10 to 20)", "3.00"]
    assert [row[1] for row in rows("rate", turns)] == list(_SHOWN)


@pytest.mark.parametrize(("values", "found"), [([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0], 2.5)])
def test_the_middle_of_an_even_number_is_between_two(values: list[float], found: float) -> None:
    assert middle(values) == found
