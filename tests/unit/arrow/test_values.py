"""Values by schema, against libraries that decode one after the other."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.arrow.avro_types import arrow_type, parse_avro
from magnetar.arrow.avro_values import AvroValues
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import PADDING
from magnetar.arrow.json_values import JsonValues
from magnetar.arrow.key_values import BytesValues, KeyValues
from magnetar.arrow.plain_values import PlainValues
from magnetar.arrow.protobuf_values import ProtobufValues, find_message, protobuf_type
from magnetar.arrow.values import TextValues, Values
from magnetar.client.errors import PayloadError

UTC_TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


def read(values: Values, raw: list[bytes | None], **columns: pa.Array) -> list[Any]:
    """Decodes payloads that lie one after the other, None for those without one."""
    lengths = np.array([len(each or b"") for each in raw], np.int64)
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join((*(each or b"" for each in raw), PADDING)), np.uint8)
    present = np.array([each is not None for each in raw], np.bool_)
    decoded = values.decode(data, ends - lengths, ends, present, columns.__getitem__)
    assert decoded.type == values.type
    decoded.validate(full=True)
    found: list[Any] = decoded.to_pylist()
    return found


def avro(definition: Any, values: list[Any]) -> list[bytes | None]:
    schema = fastavro.parse_schema(definition)
    raw: list[bytes | None] = []
    for value in values:
        if value is None:
            raw.append(None)
            continue
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        raw.append(out.getvalue())
    return raw


def values_of(definition: Any) -> AvroValues:
    text = json.dumps(definition).encode()
    return AvroValues(arrow_type(parse_avro(text)), text)


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "n",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "int", "type": "int"},
        {"name": "long", "type": ["null", "long"]},
        {"name": "float", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "text", "type": ["string", "null"]},
        {"name": "bytes", "type": "bytes"},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "list", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": INNER}}},
        {"name": "map", "type": {"type": "map", "values": "n.Inner"}},
        {"name": "either", "type": ["null", "int", "string"]},
        {"name": "number", "type": ["int", "double"]},
        {"name": "inner", "type": ["null", "Inner"]},
    ],
}
texts = st.text(max_size=5)
inners = st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1)})
everything = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "text": st.none() | texts,
        "bytes": st.binary(max_size=4),
        "fixed": st.binary(min_size=3, max_size=3),
        "enum": st.sampled_from("AB"),
        "list": st.lists(st.none() | texts, max_size=3),
        "lists": st.lists(st.lists(inners, max_size=3), max_size=3),
        "map": st.dictionaries(texts, inners, max_size=3),
        "either": st.none() | st.integers(0, 9) | texts,
        "number": st.integers(0, 9) | st.floats(allow_nan=False),
        "inner": st.none() | inners,
    }
)


def expected(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    either = value["either"]
    members = {"member0": None, "member1": None}
    if either is not None:
        members["member0" if isinstance(either, int) else "member1"] = either
    return {
        **value,
        "map": list(value["map"].items()),
        "either": None if either is None else members,
        "number": float(value["number"]),
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | everything, max_size=12))
def test_avro_as_the_other_library_wrote_it(values: list[Any]) -> None:
    assert read(values_of(EVERYTHING), avro(EVERYTHING, values)) == [expected(value) for value in values]


def test_avro_logical_types() -> None:
    fields = {
        "day": ({"type": "int", "logicalType": "date"}, date(2026, 1, 2)),
        "millis": ({"type": "long", "logicalType": "timestamp-millis"}, UTC_TIME),
        "micros": ({"type": "long", "logicalType": "timestamp-micros"}, UTC_TIME),
        "local": (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            UTC_TIME.replace(tzinfo=None),
        ),
        "price": (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12345.67"),
        ),
    }
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": type_} for name, (type_, _) in fields.items()],
    }
    row = {name: value for name, (_, value) in fields.items()}
    assert read(values_of(definition), avro(definition, [row, row])) == [row, row]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_avro_versions_become_the_one_that_is_read() -> None:
    """Fields come, go, change their names and grow, within one delivery."""
    first = record(
        {"name": "a", "type": "int"}, {"name": "gone", "type": INNER}, {"name": "old", "type": "string"}
    )
    second = record({"name": "new", "type": "string", "aliases": ["old"]}, {"name": "a", "type": "long"})
    last = record(
        {"name": "a", "type": "double"},
        {"name": "new", "type": ["null", "string"], "aliases": ["old"], "default": None},
        {"name": "more", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    )
    known = {b"1": first, b"2": second, b"3": last}
    text = json.dumps(last).encode()
    values = AvroValues(
        arrow_type(parse_avro(text)), text, lambda version: json.dumps(known[version]).encode()
    )
    rows: list[tuple[bytes | None, Any, dict[str, Any]]] = [
        (b"1", first, {"a": 1, "gone": {"x": 5}, "old": "one"}),
        (b"2", second, {"a": 2, "new": "two"}),
        (b"1", first, {"a": 3, "gone": {"x": 6}, "old": "three"}),
        (None, last, {"a": 4.5, "new": None, "more": [7]}),
        (b"3", last, {"a": 5.5, "new": "five", "more": []}),
    ]
    raw = [avro(definition, [value])[0] for _, definition, value in rows]
    versions = pa.array([version for version, _, _ in rows], pa.binary())
    assert read(values, raw, schema_version=versions) == [
        {"a": 1.0, "new": "one", "more": [1, 2]},
        {"a": 2.0, "new": "two", "more": [1, 2]},
        {"a": 3.0, "new": "three", "more": [1, 2]},
        {"a": 4.5, "new": None, "more": [7]},
        {"a": 5.5, "new": "five", "more": []},
    ]


def test_avro_that_names_no_version_is_all_of_its_bytes() -> None:
    """Any bytes begin like some record: here with the number 56."""
    definition = record(
        {"name": "n", "type": "long"}, {"name": "m", "type": ["null", "long"], "default": None}
    )
    whole, more = avro(definition, [{"n": 7, "m": None}])[0] or b"", b"poison"
    text = json.dumps(definition).encode()
    for kind in (pa.struct([("n", pa.int64()), ("m", pa.int64())]), pa.struct([("n", pa.int64())])):
        values = AvroValues(kind, text, lambda _: text)
        none, named = pa.nulls(1, pa.binary()), pa.array([b"1"])
        assert read(values, [whole], schema_version=none)[0]["n"] == 7
        with pytest.raises(PayloadError, match="names no version"):
            read(values, [whole + more], schema_version=none)
        assert read(values, [whole + more], schema_version=named)[0]["n"] == 7


def test_some_fields_of_a_type_that_contains_itself() -> None:
    node = record(
        {"name": "next", "type": ["null", "R"]},
        {"name": "name", "type": "string"},
        {"name": "n", "type": "long"},
    )
    text = json.dumps(node).encode()
    with pytest.raises(ValueSchemaError, match="contains itself"):
        arrow_type(parse_avro(text))
    values = AvroValues(pa.struct([("n", pa.int64())]), text)
    deep = {"next": {"next": None, "name": "b", "n": 2}, "name": "a", "n": 1}
    assert read(values, avro(node, [deep, deep["next"]])) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("cut", range(1, 12))
def test_avro_that_is_cut_off_is_refused(cut: int) -> None:
    definition = record(
        {"name": "s", "type": "string"}, {"name": "l", "type": {"type": "array", "items": "long"}}
    )
    (raw,) = avro(definition, [{"s": "abcd", "l": [1, 2, 3, 4]}])
    assert raw is not None
    with pytest.raises(PayloadError):
        read(values_of(definition), [raw[:-cut]])


def test_avro_that_cannot_be_read_as_wanted() -> None:
    definition = json.dumps(record({"name": "s", "type": "string"})).encode()
    with pytest.raises(ValueSchemaError, match="cannot be read as int64"):
        AvroValues(pa.struct([("s", pa.int64())]), definition)


JSON_TYPE = pa.struct(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("o", pa.struct([("d", pa.float64()), ("b", pa.bool_())])),
        ("l", pa.list_(pa.field("element", pa.int32()))),
    ]
)


def test_json_by_arrow() -> None:
    raw = [
        b'{"n": 1, "s": "x", "o": {"d": 1.5, "b": true}, "l": [1, 2], "unknown": [{}]}',
        None,
        b"{}",
        b'{"s":\n null, "l": []}',
    ]
    assert read(JsonValues(JSON_TYPE), raw) == [
        {"n": 1, "s": "x", "o": {"d": 1.5, "b": True}, "l": [1, 2]},
        None,
        {"n": None, "s": None, "o": None, "l": None},
        {"n": None, "s": None, "o": None, "l": []},
    ]


def test_json_that_arrow_does_not_read() -> None:
    type_ = pa.struct(
        [
            ("m", pa.map_(pa.string(), pa.int64())),
            ("t", pa.timestamp("us", tz="UTC")),
            ("d", pa.decimal128(10, 2)),
            ("b", pa.binary()),
            ("day", pa.date32()),
        ]
    )
    at_ms = int(UTC_TIME.timestamp() * 1000)
    raw: list[bytes | None] = [
        b'{"m": {"a": 1}, "t": %d, "d": 12.34, "b": "AQI=", "day": 3}' % at_ms,
        b'{"t": "2026-01-02T03:04:05.678Z", "day": "1970-01-04"}',
    ]
    first, second = read(JsonValues(type_), raw)
    assert first == {
        "m": [("a", 1)],
        "t": UTC_TIME,
        "d": Decimal("12.34"),
        "b": b"\x01\x02",
        "day": date(1970, 1, 4),
    }
    assert second == {"m": None, "t": UTC_TIME, "d": None, "b": None, "day": date(1970, 1, 4)}


@pytest.mark.parametrize("raw", [b'{"n": ', b'{"n": "x"}', b"[1]", b"{} {}"])
def test_what_is_no_such_json_is_named(raw: bytes) -> None:
    with pytest.raises(PayloadError, match="JSON"):
        read(JsonValues(JSON_TYPE), [b"{}", raw])


def protobuf_files() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=field.TYPE_SINT32, label=field.LABEL_OPTIONAL)
    outer = file.message_type.add(name="Outer")
    entry = outer.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    plain = (
        ("n", field.TYPE_INT64),
        ("u", field.TYPE_UINT64),
        ("s", field.TYPE_STRING),
        ("b", field.TYPE_BYTES),
        ("d", field.TYPE_DOUBLE),
    )
    for number, (name, kind) in enumerate(plain, 1):
        outer.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    outer.field.add(
        name="c", number=6, type=field.TYPE_ENUM, type_name=".t.Color", label=field.LABEL_OPTIONAL
    )
    for name, number, label in (("i", 7, field.LABEL_OPTIONAL), ("r", 8, field.LABEL_REPEATED)):
        outer.field.add(name=name, number=number, type=field.TYPE_MESSAGE, type_name=".t.Inner", label=label)
    outer.field.add(name="p", number=9, type=field.TYPE_INT32, label=field.LABEL_REPEATED)
    outer.field.add(
        name="m", number=10, type=field.TYPE_MESSAGE, type_name=".t.Outer.MEntry", label=field.LABEL_REPEATED
    )
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf() -> None:
    files = protobuf_files()
    message = find_message(files, "t.Outer")
    outer: Any = GetMessageClass(message)
    full = outer(n=-5, u=2**64 - 1, s="é", b=b"\x00", d=1.5, c=1, p=[1, -2], m={"a": 7})
    full.i.x = -3
    full.r.add(x=4)
    values = ProtobufValues(protobuf_type(message), files, "t.Outer")
    odd = outer(c=9)
    assert read(values, [full.SerializeToString(), None, b"", odd.SerializeToString()]) == [
        {
            "n": -5,
            "u": Decimal(2**64 - 1),
            "s": "é",
            "b": b"\x00",
            "d": 1.5,
            "c": "BLUE",
            "i": {"x": -3},
            "r": [{"x": 4}],
            "p": [1, -2],
            "m": [("a", 7)],
        },
        None,
        dict.fromkeys("i")
        | {"n": 0, "u": 0, "s": "", "b": b"", "d": 0.0, "c": "RED", "r": [], "p": [], "m": []},
        dict.fromkeys("i")
        | {"n": 0, "u": 0, "s": "", "b": b"", "d": 0.0, "c": "9", "r": [], "p": [], "m": []},
    ]
    with pytest.raises(PayloadError, match="not a Protobuf"):
        read(values, [b"\xff"])
    with pytest.raises(ValueSchemaError, match="does not hold the message"):
        find_message(files, "t.Other")


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("INT8", struct.pack(">b", -3), -3),
        ("INT16", struct.pack(">h", -300), -300),
        ("INT32", struct.pack(">i", -70000), -70000),
        ("INT64", struct.pack(">q", -(2**40)), -(2**40)),
        ("FLOAT", struct.pack(">f", 1.5), 1.5),
        ("DOUBLE", struct.pack(">d", 1.1), 1.1),
        ("BOOLEAN", b"\x01", True),
        ("TIMESTAMP", struct.pack(">q", 1_767_323_045_678), UTC_TIME - timedelta(0)),
        ("INSTANT", struct.pack(">qi", 1_767_323_045, 678_000_000), UTC_TIME),
        ("LOCAL_DATE", struct.pack(">q", 20455), date(2026, 1, 2)),
        ("TIME", struct.pack(">q", 5), 5),
        (
            "LOCAL_DATE_TIME",
            struct.pack(">qq", 20455, 11_045_678_000_000),
            UTC_TIME.replace(tzinfo=None),
        ),
    ],
)
def test_values_without_a_definition(name: str, raw: bytes, value: Any) -> None:
    assert read(PlainValues(name), [raw, None, raw]) == [value, None, value]
    with pytest.raises(PayloadError, match="has not"):
        read(PlainValues(name), [raw + b"\x00"])


def test_key_values() -> None:
    def inline(key: bytes | None, value: bytes | None) -> bytes:
        return b"".join(
            struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in (key, value)
        )

    values = KeyValues(TextValues(), BytesValues(), separated=False)
    raw = [inline(b"k", b"v1"), None, inline(b"", None), inline(None, b"")]
    assert read(values, raw) == [
        {"key": "k", "value": b"v1"},
        None,
        {"key": "", "value": None},
        {"key": None, "value": b""},
    ]
    with pytest.raises(PayloadError):
        read(values, [inline(b"k", b"value")[:-2]])
    apart = KeyValues(TextValues(), BytesValues(), separated=True)
    keys = pa.array([b"a", None, b"cc"], pa.binary())
    assert read(apart, [b"1", b"2", None], key=keys) == [
        {"key": "a", "value": b"1"},
        {"key": None, "value": b"2"},
        {"key": "cc", "value": None},
    ]


def test_pools_are_apart() -> None:
    """Two topics may have messages of one name."""
    assert find_message(protobuf_files(), "t.Outer").file.pool is not DescriptorPool()
