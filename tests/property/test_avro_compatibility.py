"""What the checker calls readable, fastavro can really decode.

Two schemas grow from one by random edits; values of the writer's schema are encoded and decoded with the
reader's. The other direction holds for the edits that cannot depend on the value.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.schemas.avro_compatibility import unreadable
from magnetar.schemas.avro_definition import parse

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=4).filter(lambda data: data.isascii()),
    "string": st.text("abc", max_size=4),
}
SYMBOLS = st.lists(st.sampled_from("ABCD"), min_size=1, max_size=4, unique=True)


@st.composite
def schemas(draw: st.DrawFn, name: str = "T", depth: int = 2) -> Any:
    """A schema; `name` is where it stands, so that both sides name their types alike."""
    kinds = ["primitive"] * 3 + ["enum", "fixed"]
    if depth:
        kinds += ["record"] * 3 + ["array", "map", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(sorted(VALUES)))
    if kind == "enum":
        made: dict[str, Any] = {"type": "enum", "name": f"{name}E", "symbols": draw(SYMBOLS)}
        if draw(st.booleans()):
            made["default"] = made["symbols"][0]
        return made
    if kind == "fixed":
        return {"type": "fixed", "name": f"{name}F", "size": draw(st.integers(1, 2))}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(f"{name}i", depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(f"{name}v", depth - 1))}
    if kind == "union":
        inner = draw(st.sampled_from(["int", "long", "double", "string", "boolean"]))
        return draw(st.permutations(["null", inner]))
    fields = []
    for field in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        optional = draw(st.booleans())
        type_ = draw(schemas(f"{name}{field}", depth - 1)) if not optional else ["null", draw(PLAIN)]
        fields.append({"name": field, "type": type_} | ({"default": None} if optional else {}))
    return {"type": "record", "name": f"{name}R", "fields": fields}


PLAIN = st.sampled_from(["int", "long", "string", "double"])


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values that can be written with a schema."""
    if isinstance(schema, str):
        return VALUES[schema]
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    kind = schema["type"]
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text("xy", max_size=2), values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})


@st.composite
def edited(draw: st.DrawFn, schema: Any) -> Any:
    """A schema that is like another one, or not quite."""
    if not isinstance(schema, dict) or draw(st.integers(0, 5)) == 0:
        if draw(st.integers(0, 3)):
            return schema
        if isinstance(schema, str):
            return draw(st.sampled_from([*sorted(VALUES), ["null", schema]]))
        return schema
    new = dict(schema)
    if "items" in new:
        new["items"] = draw(edited(new["items"]))
    elif "values" in new:
        new["values"] = draw(edited(new["values"]))
    elif "symbols" in new:
        new["symbols"] = draw(SYMBOLS)
        new.pop("default", None)
        if draw(st.booleans()):
            new["default"] = new["symbols"][0]
    elif "fields" in new:
        new["fields"] = [
            {**field, "type": draw(edited(field["type"]))} if "default" not in field else field
            for field in new["fields"]
            if draw(st.integers(0, 4))
        ]
        if draw(st.booleans()):
            extra: dict[str, Any] = {"name": "d", "type": "int"}
            new["fields"].append(extra | ({"default": 3} if draw(st.booleans()) else {}))
    return new


def decodes(reader: Any, writer: Any, value: Any) -> bool:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, writer, value)
    data.seek(0)
    try:
        fastavro.schemaless_reader(data, writer, reader)
    except (fastavro.read.SchemaResolutionError, ValueError, KeyError, IndexError):
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_what_is_called_readable_can_be_decoded(data: st.DataObject) -> None:
    writer = data.draw(schemas())
    reader = data.draw(st.one_of(edited(writer), schemas()))
    if unreadable(parse(reader), parse(writer)) is None:
        assert decodes(reader, writer, data.draw(values(writer)))


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_what_always_fails_is_called_unreadable(data: st.DataObject) -> None:
    writer = data.draw(schemas())
    reader = data.draw(edited(writer))
    if not decodes(reader, writer, data.draw(values(writer))):
        assert unreadable(parse(reader), parse(writer)) is not None


@given(data=st.data())
def test_a_schema_reads_itself(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    assert unreadable(parse(schema), parse(schema)) is None
