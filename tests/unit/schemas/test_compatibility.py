"""Strategies over versions, and the types that are not Avro."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from magnetar.schemas.compatibility import Strategy, check, check_definition, identity, unreadable
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.schemas.key_value import join
from magnetar.schemas.types import NAMES, TYPES
from magnetar.wire import pulsar_pb2 as pb


def schema(type_: str, data: bytes = b"", **properties: str) -> pb.Schema:
    made = pb.Schema(name="x", type=pb.Schema.Type.Name(TYPES[type_]), schema_data=data)
    for key, value in properties.items():
        made.properties.add(key=key.replace("_", "."), value=value)
    return made


def avro(*fields: str, optional: tuple[str, ...] = (), type_: str = "AVRO") -> pb.Schema:
    """A record of ints; `optional` ones have a default."""
    made: list[dict[str, object]] = [{"name": name, "type": "int"} for name in fields]
    made += [{"name": name, "type": "int", "default": 0} for name in optional]
    return schema(type_, json.dumps({"type": "record", "name": "R", "fields": made}).encode())


def key_value(key: pb.Schema, value: pb.Schema) -> pb.Schema:
    data = join(key.schema_data, value.schema_data)
    return schema("KEY_VALUE", data, key_schema_type=NAMES[key.type], value_schema_type=NAMES[value.type])


A, AB, AC = avro("a"), avro("a", "b"), avro("a", optional=("c",))
"""AB can be read as A, not the other way; A and AC can be read as each other."""

ALLOWED = [
    # strategy, versions that exist, the new one, whether it is allowed
    ("UNDEFINED", [A], AC, True),
    ("UNDEFINED", [A], AB, False),
    ("UNDEFINED", [AB], A, False),
    ("FULL", [A], AC, True),
    ("FULL", [A], AB, False),
    ("BACKWARD", [AB], A, True),
    ("BACKWARD", [A], AB, False),
    ("FORWARD", [A], AB, True),
    ("FORWARD", [AB], A, False),
    ("ALWAYS_COMPATIBLE", [A], AB, True),
    ("ALWAYS_COMPATIBLE", [A], schema("STRING"), True),
    ("ALWAYS_INCOMPATIBLE", [A], A, True),
    ("ALWAYS_INCOMPATIBLE", [A], AC, False),
    ("ALWAYS_INCOMPATIBLE", [], A, True),
    ("BACKWARD", [A, AB], AB, True),
    ("BACKWARD_TRANSITIVE", [A, AB], avro("a", "b"), False),
    ("FORWARD", [AB, A], avro("a", "d"), True),
    ("FORWARD_TRANSITIVE", [AB, A], avro("a", "d"), False),
    ("FULL", [AB, A], AC, True),
    ("FULL_TRANSITIVE", [AB, A], AC, False),
    ("FULL_TRANSITIVE", [A, AC], avro("a", optional=("d",)), True),
]


@pytest.mark.parametrize(("strategy", "stored", "new", "allowed"), ALLOWED)
def test_strategies(strategy: str, stored: list[pb.Schema], new: pb.Schema, allowed: bool) -> None:
    versions = list(enumerate(stored))
    if allowed:
        check(new, versions, Strategy(strategy))
    else:
        with pytest.raises(IncompatibleSchemaError, match="strategy"):
            check(new, versions, Strategy(strategy))


def test_the_text_names_version_rule_and_field() -> None:
    with pytest.raises(IncompatibleSchemaError) as caught:
        check(AB, [(3, A)], Strategy.UNDEFINED)
    assert str(caught.value) == (
        "the new schema cannot read version 3 (strategy FULL): "
        "field R.b has no default value and is missing in what was written"
    )


@pytest.mark.parametrize(
    ("strategy", "for_consumers"),
    [
        ("UNDEFINED", "BACKWARD"),
        ("FORWARD", "BACKWARD"),
        ("FORWARD_TRANSITIVE", "BACKWARD"),
        ("FULL", "BACKWARD"),
        ("FULL_TRANSITIVE", "BACKWARD_TRANSITIVE"),
        ("ALWAYS_COMPATIBLE", "ALWAYS_COMPATIBLE"),
        ("ALWAYS_INCOMPATIBLE", "ALWAYS_INCOMPATIBLE"),
    ],
)
def test_consumers_must_read_what_exists(strategy: str, for_consumers: str) -> None:
    assert Strategy(strategy).for_consumers is Strategy(for_consumers)


def test_types_must_match() -> None:
    assert unreadable(schema("INT32"), schema("INT32")) is None
    assert unreadable(schema("INT32"), schema("INT64")) == "the type is INT32 as read and INT64 as written"
    assert unreadable(avro("a"), avro("a", type_="JSON")) is not None


def test_json_is_checked_as_avro_and_old_json_schemas_are_taken() -> None:
    assert unreadable(avro("a", "b", type_="JSON"), avro("a", type_="JSON")) is not None
    old = schema("JSON", b'{"type": "object", "id": "urn:x", "properties": {}}')
    assert unreadable(old, avro("a", type_="JSON")) is None
    assert unreadable(avro("a", type_="JSON"), old) is None
    with pytest.raises(InvalidSchemaError):
        check(schema("AVRO", old.schema_data), [], Strategy.FULL)


@pytest.mark.parametrize("type_", ["AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE"])
def test_definitions_are_checked_even_where_all_is_compatible(type_: str) -> None:
    for data in (b"", b"{", b"[" * 100_000, b"\xff", b"{}"):
        with pytest.raises(InvalidSchemaError):
            check(schema(type_, data), [], Strategy.ALWAYS_COMPATIBLE)


def test_key_value_checks_both_parts() -> None:
    assert unreadable(key_value(A, AC), key_value(AC, A)) is None
    assert unreadable(key_value(AB, A), key_value(A, A)) == (
        "key: field R.b has no default value and is missing in what was written"
    )
    assert str(unreadable(key_value(A, schema("STRING")), key_value(A, A))).startswith("value: the type is")
    with pytest.raises(InvalidSchemaError):
        unreadable(key_value(A, A), schema("KEY_VALUE", struct.pack(">i", 100)))


def native(root: str, *fields: tuple[str, int, str], required: tuple[str, ...] = ()) -> pb.Schema:
    files = FileDescriptorSet()
    file = files.file.add(name="x.proto", package="p")
    message = file.message_type.add(name=root)
    inner = message.nested_type.add(name="Inner")
    for name, number, type_ in fields:
        holder = inner if name.startswith("inner_") else message
        field = holder.field.add(
            name=name,
            number=number,
            type=FieldDescriptorProto.Type.Value(f"TYPE_{type_}"),
            label=FieldDescriptorProto.LABEL_REQUIRED
            if name in required
            else FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if type_ == "MESSAGE":
            field.type_name = f".p.{root}.Inner"
    document = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": f"p.{root}",
        "rootFileDescriptorName": "x.proto",
    }
    return schema("PROTOBUF_NATIVE", json.dumps(document).encode())


@pytest.mark.parametrize(
    ("reader", "writer", "text"),
    [
        (native("M", ("a", 1, "INT32")), native("M", ("a", 1, "INT64"), ("b", 2, "STRING")), None),
        (native("M", ("a", 1, "INT32")), native("M"), None),
        (native("M", ("new", 1, "STRING")), native("M", ("old", 1, "BYTES")), None),
        (native("M"), native("N"), "the root message is p.M as read and p.N as written"),
        (native("M", ("a", 1, "INT32")), native("M", ("a", 1, "SINT32")), "p.M.a (number 1) was written as"),
        (native("M", ("a", 1, "INT32"), required=("a",)), native("M"), "is required and may be missing"),
        (
            native("M", ("m", 1, "MESSAGE"), ("inner_a", 1, "INT32")),
            native("M", ("m", 1, "MESSAGE"), ("inner_a", 1, "STRING")),
            "field p.M.Inner.inner_a (number 1) was written as string, which cannot be read as int32",
        ),
    ],
)
def test_protobuf_goes_by_field_numbers(reader: pb.Schema, writer: pb.Schema, text: str | None) -> None:
    reason = unreadable(reader, writer)
    assert reason is None if text is None else text in str(reason)


def test_a_protobuf_message_with_two_fields_of_a_number_is_none() -> None:
    # It would not read what it has written itself.
    with pytest.raises(InvalidSchemaError, match=r"two fields of p\.M have the same number"):
        check_definition(native("M", ("a", 1, "INT64"), ("b", 1, "FIXED64")))


def test_identity_does_not_see_white_space_names_or_definitions_of_primitives() -> None:
    assert identity(schema("AVRO", b'{"a": 1, "b": 2}')) == identity(schema("AVRO", b'{"b":2,"a":1}'))
    assert identity(schema("STRING", b"x")) == identity(schema("STRING"))
    assert identity(key_value(A, A)) != identity(key_value(A, avro("a", type_="JSON")))
