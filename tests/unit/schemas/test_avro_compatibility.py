"""Avro's resolution rules, one case a row."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.schemas.avro_compatibility import unreadable
from magnetar.schemas.avro_definition import Union, parse
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError

NUMBERS = ("int", "long", "float", "double")


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    made = []
    for field in fields:
        made.append({"name": field[0], "type": field[1]})
        if len(field) > 2:
            made[-1]["default"] = field[2]
    return {"type": "record", "name": name, "fields": made}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def why(reader: Any, writer: Any) -> str | None:
    return unreadable(parse(reader), parse(writer))


NODE = record(("value", "int"), ("next", ["null", "R"]))

READABLE = {
    "the same": (record(("a", "int")), record(("a", "int"))),
    "a field less": (record(("a", "int")), record(("a", "int"), ("b", "string"))),
    "a new field with a default": (record(("a", "int"), ("b", "int", 7)), record(("a", "int"))),
    "a default of null": (record(("a", ["null", "int"], None)), record()),
    "fields in another order": (
        record(("a", "int"), ("b", "string")),
        record(("b", "string"), ("a", "int")),
    ),
    "a record of another name": (record(("a", "int"), name="New"), record(("a", "int"), name="Old")),
    "a field's alias": (
        {"type": "record", "name": "R", "fields": [{"name": "b", "aliases": ["a"], "type": "int"}]},
        record(("a", "int")),
    ),
    "into a union": (["null", "int"], "int"),
    "a promotion into a union": (["null", "double"], "int"),
    "a wider union": (["null", "int", "string"], ["int", "null"]),
    "from a union of one": ("int", ["int"]),
    "from a union that always fits": ("double", ["int", "float"]),
    "an empty union": ("int", []),
    "items": ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    "values": ({"type": "map", "values": "string"}, {"type": "map", "values": "bytes"}),
    "more symbols": (enum("A", "B"), enum("A")),
    "fewer symbols with a default": (enum("A", default="A"), enum("A", "B")),
    "an enum's alias": (enum("A", name="New", aliases=["E"]), enum("A")),
    "names without their namespace": (fixed(4, name="x.F"), fixed(4, name="y.F")),
    "a logical type": ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
    "the same decimal": (decimal(9, 2), decimal(9, 2)),
    "a decimal as its bytes": ("bytes", decimal(9, 2)),
    "a type that contains itself": (NODE, NODE),
    "a type that contains itself, and more": (
        NODE,
        record(*[("value", "int"), ("next", ["null", "R"]), ("x", "int")]),
    ),
    "a record in a union by structure": (
        ["null", record(("a", "int"), name="New")],
        record(("a", "int"), name="Old"),
    ),
}

UNREADABLE = {
    "a new field without a default": (
        record(("a", "int"), ("b", "int")),
        record(("a", "int")),
        "field R.b has no default value and is missing in what was written",
    ),
    "another type": (record(("a", "int")), record(("a", "string")), "field R.a: what was written as string"),
    "a union that may be null": ("int", ["null", "int"], "what was written as null cannot be read as int"),
    "a narrower union": (
        ["null", "int"],
        ["null", "string"],
        "as string cannot be read as union [null, int]",
    ),
    "items": (
        record(("a", {"type": "array", "items": "int"})),
        record(("a", {"type": "array", "items": "long"})),
        "field R.a[]: what was written as long cannot be read as int",
    ),
    "values": (
        {"type": "map", "values": record(("x", "int"))},
        {"type": "map", "values": record()},
        "field {}.x has no default",
    ),
    "within": (
        record(("a", ["null", record(("b", "int"), name="Inner")])),
        record(("a", ["null", record(name="Inner")])),
        "field R.a.b has no default",
    ),
    "a symbol that is gone": (enum("A"), enum("A", "B", "C"), "enum E lacks the symbols B, C"),
    "an enum of another name": (enum("A"), enum("A", name="X"), "enum X cannot be read as enum E"),
    "a fixed of another size": (fixed(4), fixed(8), "fixed F has 8 bytes as written, 4 as read"),
    "a fixed of another name": (fixed(4), fixed(4, name="X"), "fixed X cannot be read as fixed F"),
    "another scale": (decimal(9, 2), decimal(9, 3), "a decimal of precision 9, scale 3 is not one of"),
    "an enum as text": ("string", enum("A"), "written as enum E cannot be read as string"),
    "a record as a map": ({"type": "map", "values": "int"}, record(), "written as record R"),
    "deep in a type that contains itself": (
        record(("value", "int"), ("next", ["null", "R"])),
        record(("value", "string"), ("next", ["null", "R"])),
        "field R.value",
    ),
}


@pytest.mark.parametrize(("reader", "writer"), READABLE.values(), ids=READABLE)
def test_readable(reader: Any, writer: Any) -> None:
    assert why(reader, writer) is None


@pytest.mark.parametrize(("reader", "writer", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable(reader: Any, writer: Any, text: str) -> None:
    assert text in (why(reader, writer) or "")


@pytest.mark.parametrize("writer", NUMBERS)
@pytest.mark.parametrize("reader", NUMBERS)
def test_numbers_are_promoted_upwards_only(reader: str, writer: str) -> None:
    assert (why(reader, writer) is None) == (NUMBERS.index(reader) >= NUMBERS.index(writer))


def test_what_was_believed_of_a_cycle_is_looked_at_again() -> None:
    # A is compared first; within it B, for which A counts as readable. Then A fails at z, and W is taken
    # for it. B must not stay readable on that belief.
    def b(optional: list[Any]) -> dict[str, Any]:
        return record(("a", optional), name="B")

    writer = [record(("q", "int"), ("b", b(["null", "A"])), name="A"), "B"]
    reader = [record(("b", b(["null", "A"])), ("z", "int"), name="A"), record(("q", "int"), name="W"), "B"]
    assert "field A.z has no default" in (why(reader, writer) or "")
    assert why(reader, writer[0]) is None
    assert why(reader, reader) is None


def test_hostile_schemas_are_refused_in_time() -> None:
    wide = [record(("a", "int"), (f"f{i}", "int"), name=f"R{i}") for i in range(400)]
    with pytest.raises(IncompatibleSchemaError, match="too complex"):
        why(wide, wide)
    chain: list[Any] = [record(("x", "int"), name="R0")]
    chain += [record(("x", f"R{i}"), name=f"R{i + 1}") for i in range(1000)]
    last = [parsed.branches[-1] for parsed in (parse(chain), parse(chain)) if isinstance(parsed, Union)]
    with pytest.raises(IncompatibleSchemaError, match="too complex"):
        unreadable(*last)
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(InvalidSchemaError, match="nested deeper"):
        parse(deep)


@pytest.mark.parametrize(
    "document",
    [
        None,
        17,
        "nothing",
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": ["x"]},
        record(("a", "int"), ("a", "int")),
        record(("a", "Unknown")),
        {"type": "array"},
        {"type": "map"},
        {"type": "enum", "name": "E"},
        enum("A", default="B"),
        fixed(-1),
        {"type": "fixed", "name": "F"},
        ["int", ["string"]],
        enum(3),  # type: ignore[arg-type]  # the mistake under test
    ],
    ids=repr,
)
def test_definitions_that_are_none(document: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(document)


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "fixed", "name": "F", "size": 2}
    outer = {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "a", "type": inner}]}
    again = {**outer, "fields": [*outer["fields"], {"name": "b", "type": "F"}, {"name": "c", "type": "n.F"}]}
    assert why(outer, again) is None
    assert why(record(("a", {"type": "int", "logicalType": "date"})), record(("a", "int"))) is None
