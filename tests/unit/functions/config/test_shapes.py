"""Values of JSON become typed ones, as far as clients write them differently."""

from __future__ import annotations

import math

import pytest

from magnetar.functions.config import shapes
from magnetar.functions.refusals import InvalidConfigError


def test_numbers_come_as_texts_too() -> None:
    assert [shapes.whole(value, "n") for value in (3, "3", " -4 ", 5.0)] == [3, 3, -4, 5]
    assert shapes.long(1 << 40, "n") == 1 << 40
    assert [shapes.decimal(value, "n") for value in (1, "1.5", 0.25)] == [1.0, 1.5, 0.25]
    wrong: object
    for wrong in (True, 1.5, "x", "9" * 30, None, [], 1 << 31):
        with pytest.raises(InvalidConfigError):
            shapes.whole(wrong, "n")
    for wrong in (True, "x", math.inf, math.nan, 1 << 70, "nan", []):
        with pytest.raises(InvalidConfigError):
            shapes.decimal(wrong, "n")


def test_truth_and_texts() -> None:
    assert [shapes.flag(value, "f") for value in (True, "true", "False")] == [True, True, False]
    assert [shapes.text(value, "t") for value in ("a", True, False, 1, 1.5)] == [
        "a",
        "true",
        "false",
        "1",
        "1.5",
    ]
    with pytest.raises(InvalidConfigError, match="f must be true or false, not int"):
        shapes.flag(1, "f")


def test_a_list_and_an_object_are_bounded() -> None:
    with pytest.raises(InvalidConfigError):
        shapes.texts(["x"] * (shapes.ENTRIES_MAX + 1), "l")
    with pytest.raises(InvalidConfigError):
        shapes.document({str(i): 1 for i in range(shapes.ENTRIES_MAX + 1)}, "o")
    assert shapes.map_of(shapes.whole)({"a": "1", "b": None}, "m") == {"a": 1}
