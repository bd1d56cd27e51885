"""Chooses the format of a table's value by the schemas of its topics."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from magnetar.arrow.avro_types import arrow_type, parse_avro
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.plain_values import PLAIN_TYPES
from magnetar.arrow.protobuf_values import find_message, protobuf_type
from magnetar.base.names import TopicName
from magnetar.client.client import Client, TopicSchema
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.schemas.types import NAMES
from magnetar.spark.errors import OptionError
from magnetar.spark.read.read_options import ValueOptions
from magnetar.spark.read.value_formats import BYTES, TEXT, Definitions, ValueFormat, type_from_json

_KEY_VALUE_PART: Final = struct.Struct(">i")
_FORMAT_OF: Final = {
    "AVRO": "avro",
    "JSON": "json",
    "PROTOBUF_NATIVE": "protobuf",
    "PROTOBUF": "protobuf",
    "KEY_VALUE": "keyvalue",
    "STRING": "string",
}
"""The format for each type of schema."""


def value_format(client: Client, topics: Sequence[TopicName], options: ValueOptions) -> ValueFormat:
    """Chooses the format for these topics. Fetches their schemas, except for the formats bytes and string.

    Raises OptionError when the format does not fit the schema, or the schemas of topics differ.
    """
    if options.format == "bytes":
        return BYTES
    if options.format == "string":
        return TEXT
    bases = list(dict.fromkeys(topic.base for topic in topics))
    schemas = [client.schema(base, _version(options.version)) for base in bases]
    first = schemas[0] if schemas else None
    for base, schema in zip(bases, schemas, strict=True):
        if not options.differs and _told(schema) != _told(first):
            raise OptionError(
                f"{base} has another schema than {bases[0]}: read them one by one, as valueFormat=variant, or"
                " set allowDifferentTopicSchemas=true to read all as the first"
            )
    if options.version is not None and first is None:
        raise OptionError(f"schemaVersion={options.version}: {bases[0]} has no such version")
    try:
        return _chosen(options, first, str(bases[0]) if bases else "no topic")
    except (ValueSchemaError, InvalidSchemaError) as error:
        raise OptionError(f"the schema of {bases[0] if bases else 'no topic'}: {error}") from error


def _version(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(8, "big")


def _told(schema: TopicSchema | None) -> tuple[int, bytes] | None:
    return None if schema is None else (schema.type, schema.data)


def _chosen(options: ValueOptions, schema: TopicSchema | None, topic: str) -> ValueFormat:
    kind = NAMES.get(schema.type, "") if schema is not None else ""
    wanted = options.format
    if wanted == "variant":
        inside = (
            () if schema is None or kind in ("", "NONE", "JSON", "STRING") else (_of_schema(schema, options),)
        )
        return ValueFormat(kind="variant", parts=inside)
    if wanted == "json" and (options.schema or kind in ("", "NONE", "STRING", "JSON")):
        return _json(
            options.schema.encode() or (schema.data if schema is not None and kind == "JSON" else b"")
        )
    if wanted == "avro" and options.schema:
        return _avro(options.schema.encode())
    if wanted == "protobuf" and options.descriptor_file:
        return _protobuf(_read_descriptor(options.descriptor_file), options.message)
    if schema is None:
        if wanted == "auto":
            return BYTES
        raise OptionError(f"valueFormat={wanted}: {topic} has no schema" + _remedy(wanted))
    if wanted not in ("auto", _FORMAT_OF.get(kind)):
        raise OptionError(
            f"valueFormat={wanted}: the schema of {topic} is {kind}; read it with valueFormat=auto"
        )
    return _of_schema(schema, options)


def _remedy(wanted: str) -> str:
    return {
        "avro": "; give valueSchema, the Avro definition",
        "protobuf": "; give protobufDescriptor and protobufMessage",
    }.get(wanted, "")


def _of_schema(schema: TopicSchema, options: ValueOptions) -> ValueFormat:
    """The format for a schema."""
    kind = NAMES.get(schema.type, "")
    if kind == "AVRO":
        return _avro(schema.data)
    if kind == "JSON":
        return _json(schema.data)
    if kind == "STRING":
        return TEXT
    if kind in PLAIN_TYPES:
        return ValueFormat(kind=kind, type=PLAIN_TYPES[kind][2])
    if kind == "PROTOBUF_NATIVE":
        document = json.loads(schema.data)
        return _protobuf(base64.b64decode(document["fileDescriptorSet"]), document["rootMessageTypeName"])
    if kind == "PROTOBUF":
        if not options.descriptor_file:
            raise OptionError(
                "the topic's schema is PROTOBUF, which does not hold the messages' numbers: give"
                " protobufDescriptor (a FileDescriptorSet, `protoc --descriptor_set_out`) and protobufMessage"
            )
        return _protobuf(_read_descriptor(options.descriptor_file), options.message)
    if kind == "KEY_VALUE":
        return _key_value(schema, options)
    return BYTES


def _avro(definition: bytes) -> ValueFormat:
    return ValueFormat(kind="avro", type=arrow_type(parse_avro(definition)), definition=definition)


def _json(definition: bytes) -> ValueFormat:
    if not definition:
        return ValueFormat(kind="json")
    document = json.loads(definition)
    if isinstance(document, dict) and document.get("type") == "struct":
        return ValueFormat(kind="json", type=type_from_json(definition.decode()))
    return ValueFormat(kind="json", type=arrow_type(parse_avro(definition)), definition=definition)


def _protobuf(files: bytes, message: str) -> ValueFormat:
    type_ = protobuf_type(find_message(files, message))
    return ValueFormat(kind="protobuf", type=type_, definition=files, message=message)


def _read_descriptor(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise OptionError(f"protobufDescriptor={file!r}: {error.strerror}") from error


def _key_value(schema: TopicSchema, options: ValueOptions) -> ValueFormat:
    import pyarrow as pa

    parts = [
        replace(_of_schema(part, options), is_key=name == "key")
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
