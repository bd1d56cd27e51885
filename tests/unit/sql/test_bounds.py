"""Bounds are wide: they exclude no row that the query keeps."""

from __future__ import annotations

from magnetar.sql.bounds import Bounds, NumberSpan


def test_a_span_narrows() -> None:
    span = NumberSpan().and_(3, None).and_(None, 9).and_(5, 20)
    assert (span.low, span.high) == (5, 9)
    assert span.meets(9, 100)
    assert span.meets(0, 5)
    assert not span.meets(10, 100)
    assert not span.meets(0, 4)


def test_comparisons_of_numbers() -> None:
    bounds = Bounds().with_condition("publish_time", ">", [1000]).with_condition("publish_time", "<=", [2000])
    assert bounds.time_ms == NumberSpan(1000, 2000)
    assert bounds.with_condition("publish_time", "=", [1500]).time_ms == NumberSpan(1500, 1500)
    assert Bounds().with_condition("partition", "in", [4, 2]).partition == NumberSpan(2, 4)
    rows = bounds.rows
    assert rows is not None
    assert (rows.published_from_ms, rows.published_until_ms) == (1000, 2000)


def test_keys() -> None:
    bounds = Bounds().with_condition("key", "in", [b"a", b"b"]).with_condition("key", "=", [b"b"])
    assert bounds.keys == {b"b"}
    assert Bounds().with_condition("key", "<", [b"b"]).keys is None
    assert Bounds().rows is None


def test_what_is_not_understood_excludes_nothing() -> None:
    assert Bounds().with_condition("key", "in", [b"a", None]) == Bounds()
    assert Bounds().with_condition("ledger_id", "=", [None]) == Bounds()
