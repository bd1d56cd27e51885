"""Results that Arrow cannot hold are texts, and not other values."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.sql.engine import SqlEngine

LARGEST = 2**128 - 1
CASES = (
    (f"{LARGEST}::UHUGEINT", str(LARGEST)),
    (f"[{LARGEST}::UHUGEINT, NULL]", [str(LARGEST), None]),
    (f"{{'a b': {LARGEST}::UHUGEINT, 'c': 1}}", {"a b": str(LARGEST), "c": 1}),
    (f"map {{1: {LARGEST}::UHUGEINT}}", [(1, str(LARGEST))]),
    (f"union_value(a := {LARGEST}::UHUGEINT)", str(LARGEST)),
    ("array_value(1::UHUGEINT, 2::UHUGEINT)", ["1", "2"]),
    ("12345678901234567890123456789012345678901234567890::BIGNUM", "1234567890" * 5),
    ("'101'::BIT", "101"),
    ("TIMETZ '10:00:00+02'", "10:00:00+02"),
    ("1::VARIANT", "1"),
    ("[1, 2]", [1, 2]),
    ("{'a': 1}", {"a": 1}),
    ("'a'::ENUM('a', 'b')", "a"),
    ("NULL", None),
)


@pytest.mark.parametrize(("expression", "wanted"), CASES)
def test_a_value_is_shown_as_it_is(engine: SqlEngine, expression: str, wanted: Any) -> None:
    rows = engine.query(f"SELECT {expression} AS v, 7 AS n").read_all()
    assert rows.to_pylist() == [{"v": wanted, "n": 7}]


def test_names_that_occur_twice_and_the_order_stay(engine: SqlEngine) -> None:
    text = 'SELECT i::UHUGEINT AS "a b", i AS "a b", i AS x FROM range(5000) t(i) ORDER BY i DESC'
    rows = engine.query(text).read_all()
    assert rows.schema.names == ["a b", "a b", "x"]
    assert rows.column(2).to_pylist() == list(range(4999, -1, -1))
    assert rows.column(0).to_pylist()[:2] == ["4999", "4998"]
