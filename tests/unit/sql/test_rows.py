"""Rows of a result as lines of JSON."""

from __future__ import annotations

import pytest

from magnetar.sql.rows import json_line


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a", "a_1"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        (["a_1", "a", "a"], ["a_1", "a", "a_2"]),
    ],
)
def test_columns_of_one_name_are_all_there(names: list[str], shown: list[str]) -> None:
    values = [str(number) for number in range(len(names))]
    members = ", ".join(f'"{name}": "{value}"' for name, value in zip(shown, values, strict=True))
    assert json_line(list(zip(names, values, strict=True))) == f"{{{members}}}\n"
