"""Chooses the format of a table's value by the schemas of its topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar.arrow.errors import ValueSchemaError
from magnetar.base.names import TopicName
from magnetar.client.client import Client, TopicSchema
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.schemas.types import NAMES
from magnetar.spark.errors import OptionError
from magnetar.spark.read.read_options import ValueOptions
from magnetar.spark.read.spark_values import type_from_json
from magnetar.tables.schema_formats import avro_format, format_of_schema, json_format, protobuf_format
from magnetar.tables.value_formats import BYTES, TEXT, ValueFormat

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
        return avro_format(options.schema.encode())
    if wanted == "protobuf" and options.descriptor_file:
        return protobuf_format(_read_descriptor(options.descriptor_file), options.message)
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
    if NAMES.get(schema.type) == "JSON":
        return _json(schema.data)

    def descriptor() -> tuple[bytes, str]:
        if not options.descriptor_file:
            raise OptionError(
                "the topic's schema is PROTOBUF, which does not hold the messages' numbers: give"
                " protobufDescriptor (a FileDescriptorSet, `protoc --descriptor_set_out`) and protobufMessage"
            )
        return _read_descriptor(options.descriptor_file), options.message

    return format_of_schema(schema, descriptor)


def _json(definition: bytes) -> ValueFormat:
    if definition:
        document = json.loads(definition)
        if isinstance(document, dict) and document.get("type") == "struct":
            return ValueFormat(kind="json", type=type_from_json(definition.decode()))
    return json_format(definition)


def _read_descriptor(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise OptionError(f"protobufDescriptor={file!r}: {error.strerror}") from error
