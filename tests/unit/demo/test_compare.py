"""The comparison notices every kind of difference."""

from __future__ import annotations

import pandas as pd
import pytest

from magnetar.demo.compare import compare


def table(*rows: tuple[int, str, int | None]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["hour_ms", "carrier", "delay"])


BASE = [(1, "AA", 5), (1, "B6", None), (2, "AA", 7)]


def test_equal_tables_agree_whatever_the_order_and_the_types() -> None:
    right = table(*reversed(BASE)).astype({"delay": "Int64", "hour_ms": "int32"})
    comparison = compare("stream", table(*BASE), "batch", right)
    assert comparison.agree
    assert (comparison.left_rows, comparison.right_rows) == (3, 3)


@pytest.mark.parametrize(
    ("changed", "only_in"),
    [
        (BASE[:2], ["stream"]),
        ([*BASE, (3, "AA", 1)], ["batch"]),
        ([*BASE[:2], (2, "AA", 8)], ["batch", "stream"]),
        ([BASE[0], (1, "B6", 0), BASE[2]], ["batch", "stream"]),
        ([*BASE, BASE[0]], ["batch"]),
    ],
    ids=["missing row", "extra row", "other value", "null is not zero", "row twice"],
)
def test_each_difference_is_found(changed: list[tuple[int, str, int | None]], only_in: list[str]) -> None:
    comparison = compare("stream", table(*BASE), "batch", table(*changed))
    assert not comparison.agree
    assert comparison.differing["only_in"].tolist() == only_in


def test_other_columns_are_an_error() -> None:
    with pytest.raises(ValueError, match="extra"):
        compare("a", table(*BASE), "b", table(*BASE).assign(extra=1))


def test_fractions_are_an_error() -> None:
    with pytest.raises(ValueError, match="fractions"):
        compare("a", table(*BASE), "b", table(*BASE).assign(delay=[0.5, 1, 2]))


def test_empty_tables_agree() -> None:
    assert compare("a", table(*BASE)[:0], "b", table(*BASE)[:0]).agree
