"""The format of a topic's values by its schema, and the definitions of its schema versions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from magnetar.arrow.avro_types import arrow_type, parse_avro
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.plain_values import PLAIN_TYPES
from magnetar.arrow.protobuf_values import find_message, protobuf_type
from magnetar.base.names import TopicName
from magnetar.client.client import Client, TopicSchema
from magnetar.schemas.types import NAMES
from magnetar.tables.value_formats import BYTES, TEXT, Definitions, ValueFormat

Descriptor = Callable[[], tuple[bytes, str]]
"""Gives the FileDescriptorSet and the name of the message for schemas that have neither."""


def no_descriptor() -> tuple[bytes, str]:
    """Raises ValueSchemaError."""
    raise ValueSchemaError("a schema of the type PROTOBUF does not hold the numbers of its fields")


def format_of_schema(schema: TopicSchema, descriptor: Descriptor = no_descriptor) -> ValueFormat:
    """The format for a schema; `BYTES` for types without fields of their own.

    Raises ValueSchemaError, InvalidSchemaError, and the errors of `descriptor`.
    """
    kind = NAMES.get(schema.type, "")
    if kind == "AVRO":
        return avro_format(schema.data)
    if kind == "JSON":
        return json_format(schema.data)
    if kind == "STRING":
        return TEXT
    if kind in PLAIN_TYPES:
        return ValueFormat(kind=kind, type=PLAIN_TYPES[kind][2])
    if kind == "PROTOBUF_NATIVE":
        document = json.loads(schema.data)
        return protobuf_format(
            base64.b64decode(document["fileDescriptorSet"]), document["rootMessageTypeName"]
        )
    if kind == "PROTOBUF":
        return protobuf_format(*descriptor())
    if kind == "KEY_VALUE":
        return _key_value(schema, descriptor)
    return BYTES


def avro_format(definition: bytes) -> ValueFormat:
    """The format of an Avro definition. Raises ValueSchemaError."""
    return ValueFormat(kind="avro", type=arrow_type(parse_avro(definition)), definition=definition)


def json_format(definition: bytes) -> ValueFormat:
    """The format of JSON values with this Avro definition; empty: the type is unknown. Raises
    ValueSchemaError."""
    if not definition:
        return ValueFormat(kind="json")
    return ValueFormat(kind="json", type=arrow_type(parse_avro(definition)), definition=definition)


def protobuf_format(files: bytes, message: str) -> ValueFormat:
    """The format of a message type of a FileDescriptorSet. Raises ValueSchemaError."""
    type_ = protobuf_type(find_message(files, message))
    return ValueFormat(kind="protobuf", type=type_, definition=files, message=message)


def _key_value(schema: TopicSchema, descriptor: Descriptor) -> ValueFormat:
    parts = [
        replace(format_of_schema(part, descriptor), is_key=name == "key")
        for name, part in zip(("key", "value"), split_key_value(schema), strict=True)
    ]
    type_ = pa.struct([("key", parts[0].type), ("value", parts[1].type)])
    separated = schema.properties.get("kv.encoding.type", "INLINE").upper() == "SEPARATED"
    return ValueFormat(kind="keyvalue", type=type_, parts=tuple(parts), separated=separated)


def split_key_value(schema: TopicSchema) -> tuple[TopicSchema, TopicSchema]:
    """The schemas of key and value. Raises InvalidSchemaError."""
    from magnetar.schemas.key_value import split
    from magnetar.wire import pulsar_pb2 as pb

    whole = pb.Schema(name="", schema_data=schema.data, type=pb.Schema.Type.Name(schema.type))
    for name, text in schema.properties.items():
        whole.properties.add(key=name, value=text)
    key, value = split(whole)
    return (
        TopicSchema(key.type, key.schema_data, schema.version),
        TopicSchema(value.type, value.schema_data, schema.version),
    )


def definitions_of(client: Client, topic: TopicName) -> Definitions:
    """Returns a function that gets the definitions of schema versions of a topic, each with one request."""
    known: dict[bytes, tuple[bytes, bytes] | None] = {}

    def definitions(version: bytes) -> tuple[bytes, bytes] | None:
        if version not in known:
            schema = client.schema(topic, version)
            if schema is None:
                known[version] = None
            elif NAMES.get(schema.type) == "KEY_VALUE":
                key, value = split_key_value(schema)
                known[version] = (value.data, key.data)
            else:
                known[version] = (schema.data, b"")
        return known[version]

    return definitions
