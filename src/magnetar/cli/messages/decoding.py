"""Decodes payloads to values, by the schema version that each message names."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.cli.messages.records import Record
from magnetar.schemas import avro_plain as avro
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.client import Client, TopicSchema

_INTEGERS: Final[dict[int, int]] = {
    pb.Schema.Int8: 1,
    pb.Schema.Int16: 2,
    pb.Schema.Int32: 4,
    pb.Schema.Int64: 8,
    pb.Schema.Date: 8,
    pb.Schema.Time: 8,
    pb.Schema.Timestamp: 8,
    pb.Schema.Instant: 8,
}
_SIZE: Final = struct.Struct(">i")


class PayloadDecoder:
    """Decodes the messages of one topic. Requests each version of the schema once."""

    def __init__(self, client: Client, topic: TopicName, *, by_schema: bool = True) -> None:
        """`by_schema`: whether to decode by schemas; False: payloads are text or bytes."""
        self._client = client
        self._topic = topic.base
        self._by_schema = by_schema
        self._known: dict[bytes, TopicSchema | None] = {}

    def value(self, record: Record) -> object:
        """The value in types of JSON, and bytes for payloads that are not UTF-8. A payload that does not
        match its schema is decoded as one without a schema."""
        if record.is_null:
            return None
        if record.encrypted or not self._by_schema:
            return text_or_bytes(record.payload)
        schema = self._schema(record.schema_version)
        if schema is None:
            return text_or_bytes(record.payload)
        try:
            return _decode(schema.type, schema.data, dict(schema.properties), record)
        except (ClientError, ValueError, struct.error):
            return text_or_bytes(record.payload)

    def _schema(self, version: bytes) -> TopicSchema | None:
        if version not in self._known:
            try:
                self._known[version] = self._client.schema(self._topic, version or None)
            except ClientError:
                # A role with the right to read messages may lack the right to read schemas.
                self._known[version] = None
        return self._known[version]


def _decode(kind: int, definition: bytes, properties: dict[str, str], record: Record) -> object:
    if kind == pb.Schema.KeyValue:
        return _key_value(definition, properties, record)
    return decode_payload(kind, definition, record.payload, whole=not record.schema_version)


def decode_payload(kind: int, definition: bytes, payload: bytes, *, whole: bool = False) -> object:
    """Decodes a payload by a schema. `whole`: whether the value must take all bytes, for messages that name
    no schema version.

    Raises AvroError, ValueError, struct.error when the payload does not match the schema.
    """
    if kind == pb.Schema.Avro:
        return avro.decode(json.loads(definition), payload, whole=whole)
    if kind == pb.Schema.Json:
        return json.loads(payload)
    if kind in _INTEGERS:
        if len(payload) != _INTEGERS[kind]:
            raise ValueError("the payload has another size than its type")
        return int.from_bytes(payload, "big", signed=True)
    if kind == pb.Schema.Float:
        return struct.unpack(">f", payload)[0]
    if kind == pb.Schema.Double:
        return struct.unpack(">d", payload)[0]
    if kind == pb.Schema.Bool:
        return payload != b"\x00"
    return text_or_bytes(payload)


def _key_value(definition: bytes, properties: dict[str, str], record: Record) -> object:
    """Decodes key and value. The definition is the size and schema of each; an inline payload is the size and
    bytes of each."""
    key_schema, value_schema = _halves(definition)
    kinds = [
        pb.Schema.Type.Value(_type_name(properties.get(f"{half}.schema.type", "")))
        for half in ("key", "value")
    ]
    if properties.get("kv.encoding.type") == "SEPARATED":
        key, value = (record.key or "").encode(), record.payload
    else:
        key, value = _halves(record.payload)
    whole = not record.schema_version
    return {
        "key": decode_payload(kinds[0], key_schema, key, whole=whole),
        "value": decode_payload(kinds[1], value_schema, value, whole=whole),
    }


def _halves(data: bytes) -> tuple[bytes, bytes]:
    found = []
    at = 0
    for _ in range(2):
        (size,) = _SIZE.unpack_from(data, at)
        size = max(0, size)
        at += 4
        if at + size > len(data):
            raise ValueError("the payload is cut off")
        found.append(data[at : at + size])
        at += size
    return found[0], found[1]


def _type_name(name: str) -> str:
    """The protocol's name of a type, from the capitals in which a schema's properties name it."""
    plain_name = {"BOOLEAN": "BOOL", "BYTES": "NONE", "": "NONE"}.get(name, name).replace("_", "")
    for value in pb.Schema.Type.values():
        known = pb.Schema.Type.Name(value)
        if known.upper() == plain_name:
            return known
    return "None"


def text_or_bytes(payload: bytes) -> str | bytes:
    """The payload as text if it is UTF-8, else unchanged."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload


def plain(value: object) -> object:
    """A value for JSON: bytes become base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def text(value: object) -> str:
    """A value as text for people: bytes that are not UTF-8 are escaped."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(plain(value), ensure_ascii=False)
