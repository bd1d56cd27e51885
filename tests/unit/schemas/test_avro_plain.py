"""Avro's bytes, as another library writes them."""

from __future__ import annotations

import io
import sys
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.messages.decoding import plain
from magnetar.schemas.avro_plain import AvroError, decode, encode

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "ratio", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "next", "type": ["null", "shop.Order"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "unheard-of"}},
    ],
}
NOTHING = {"note": None, "next": None}
ORDER: dict[str, Any] = {
    "id": -(1 << 62), "small": -1, "price": 1.5, "ratio": 0.5, "paid": True, "raw": b"\xff", "kind": "B",
    "again": "A", "tags": ["x", ""], "counts": {"a": 1}, "mark": b"ab", "at": 7,
}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_every_kind_of_value() -> None:
    order = {**ORDER, **NOTHING, "note": "ü", "next": {**ORDER, **NOTHING}}
    assert decode(SCHEMA, encoded(SCHEMA, order)) == order


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_numbers(values: list[int]) -> None:
    schema = {"type": "array", "items": "long"}
    assert decode(schema, encoded(schema, values)) == values


def test_every_truncation_is_an_error() -> None:
    data = encoded(SCHEMA, {**ORDER, **NOTHING})
    for size in range(len(data)):
        with pytest.raises(AvroError):
            decode(SCHEMA, data[:size])


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (["null"], b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("long", b"\xff" * 20),
        ("bytes", b"\x01"),
        ("Unknown", b""),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b""),
    ],
)
def test_what_follows_no_schema(schema: Any, data: bytes) -> None:
    with pytest.raises(AvroError):
        decode(schema, data)


def test_what_is_written_is_read() -> None:
    order = {**ORDER, **NOTHING, "note": "ü", "next": {**ORDER, **NOTHING}}
    assert encode(SCHEMA, plain(order)) == encoded(SCHEMA, order)
    # What has a default may be left out.
    assert encode(SCHEMA, plain(ORDER)) == encoded(SCHEMA, ORDER)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_written_numbers(values: list[int]) -> None:
    schema = {"type": "array", "items": "long"}
    assert encode(schema, values) == encoded(schema, values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"small": 1 << 40}, "small is not a whole number of 32 bits"),
        ({"paid": 1}, "paid is not true or false"),
        ({"tags": ["x", 2]}, r"tags\[1\] is not a text"),
        ({"counts": {"a": "b"}}, r"counts\.a is not a whole number"),
        ({"kind": "C"}, "kind is not one of A, B"),
        ({"mark": "YQ=="}, "mark is not of 2 bytes"),
        ({"raw": "?"}, "raw is not base64"),
        ({"note": 7}, "note is not a text"),
        ({"other": 1}, "is not without other"),
        ({"next": {}}, "next.id is not there"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str) -> None:
    order: Any = plain(ORDER)
    with pytest.raises(AvroError, match=said):
        encode(SCHEMA, {**order, **change})


def test_cve_2024_47561_a_schema_names_no_code() -> None:
    """Avro for Java made objects of the classes that a schema names. Here such names mean nothing."""
    named = {
        "java-class": "javax.script.ScriptEngineManager",
        "java-key-class": "java.net.URL",
        "java-element-class": "java.net.URL",
        "python-class": "antigravity:fly",
    }
    schema = {
        "type": "record",
        "name": "fly",
        "namespace": "antigravity",
        **named,
        "fields": [
            {"name": "text", "type": {"type": "string", **named}},
            {"name": "list", "type": {"type": "array", "items": "string", **named}},
            {"name": "map", "type": {"type": "map", "values": "string", **named}},
        ],
    }
    value = {"text": "http://evil/", "list": ["a"], "map": {"k": "v"}}
    assert decode(schema, encoded(schema, value)) == value
    assert "antigravity" not in sys.modules
