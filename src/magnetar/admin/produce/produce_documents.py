"""Reads the bodies of publishing calls, and makes their answers (pure).

{"producerName": "name", "valueSchema": "{...}", "messages": [
    {"payload": "text", "key": "k", "properties": {}, "eventTime": ms, "sequenceId": n,
     "deliverAt": ms, "deliverAfterMs": ms}, ...]}

{"messagePublishResults": [{"messageId": "ledger:entry:partition"}, ...], "schemaVersion": n}
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.admin.calls.call import whole
from magnetar.admin.calls.errors import BadRequestError, NotImplementedHereError
from magnetar.schemas.types import TYPES
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb

MESSAGES_MAX: Final = 1000
"""Most messages of one call."""

_TEXTS: Final = frozenset({"NONE", "BYTES", "STRING", "JSON"})
_WHOLE: Final = {"INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q"}
_BROKEN: Final = {"FLOAT": ">f", "DOUBLE": ">d"}
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}

SCHEMA: Final = {
    "type": "object",
    "properties": {
        "producerName": _TEXT,
        "valueSchema": _TEXT,
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "payload": _TEXT,
                    "key": _TEXT,
                    "properties": {"type": "object", "additionalProperties": _TEXT},
                    "eventTime": _NUMBER,
                    "sequenceId": _NUMBER,
                    "deliverAt": _NUMBER,
                    "deliverAfterMs": _NUMBER,
                },
            },
        },
    },
    "required": ["messages"],
}
"""Schema of a body, for the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A call's messages."""

    producer_name: str
    """"" when the call names none."""
    schema: pb.Schema | None
    messages: list[Mapping[str, object]]


def request_of(body: Mapping[str, object], topic_name: str) -> PublishRequest:
    """The request in a body. Raises BadRequestError, NotImplementedHereError."""
    messages, name = body.get("messages"), body.get("producerName") or ""
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise BadRequestError('the body must be {"messages": [{"payload": "..."}, ...]}')
    if len(messages) > MESSAGES_MAX:
        raise BadRequestError(f"a call may publish {MESSAGES_MAX} messages at most")
    if not isinstance(name, str):
        raise BadRequestError("producerName must be text")
    if body.get("keySchema"):
        raise NotImplementedHereError("keys have no schemas here; send the key as text")
    return PublishRequest(name, _schema(body.get("valueSchema"), topic_name), messages)


def _schema(text: object, topic_name: str) -> pb.Schema | None:
    if text is None or text == "":
        return None
    try:
        document = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"valueSchema is not JSON: {error}") from error
    if not isinstance(document, dict) or str(document.get("type", "")).upper() not in TYPES:
        raise BadRequestError(f'valueSchema must be {{"type": ...}}, one of {", ".join(TYPES)}')
    kind = str(document["type"]).upper()
    if kind not in _TEXTS and kind not in _WHOLE and kind not in _BROKEN and kind != "BOOLEAN":
        raise NotImplementedHereError(f"messages of type {kind} cannot be published over HTTP")
    definition = document.get("schema") or ""
    try:
        data = base64.b64decode(definition, validate=True) if definition else b""
    except (ValueError, TypeError, binascii.Error):
        data = definition.encode() if isinstance(definition, str) else json.dumps(definition).encode()
    return pb.Schema(name=topic_name, type=pb.Schema.Type.Name(TYPES[kind]), schema_data=data)


def entry_of(
    message: Mapping[str, object],
    schema: pb.Schema | None,
    version: bytes,
    *,
    name: str,
    number: int,
    now_ms: int,
) -> bytes:
    """The entry of a message. Raises BadRequestError."""
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=number, publish_time=now_ms)
    key, properties = message.get("key"), message.get("properties") or {}
    if key is not None:
        metadata.partition_key = _text(key, "key")
    if not isinstance(properties, dict):
        raise BadRequestError("properties must be an object of strings")
    for each, value in properties.items():
        metadata.properties.add(key=each, value=_text(value, "a property"))
    if message.get("eventTime"):
        metadata.event_time = _time(message["eventTime"], "eventTime")
    if message.get("deliverAt"):
        metadata.deliver_at_time = _time(message["deliverAt"], "deliverAt")
    elif message.get("deliverAfterMs"):
        metadata.deliver_at_time = now_ms + _time(message["deliverAfterMs"], "deliverAfterMs")
    if version:
        metadata.schema_version = version
    return payload.build_entry(metadata, _encoded(message.get("payload"), schema))


def sequence_of(message: Mapping[str, object], usual: int) -> int:
    """The message's sequence id; `usual` when it names none. Raises BadRequestError."""
    given = message.get("sequenceId")
    return usual if given is None else _time(given, "sequenceId")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{what} must be text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequestError(f"{what} has no UTF-8 form") from error
    return value


def _time(value: object, what: str) -> int:
    number = whole(value)
    if number is None or not 0 <= number < 1 << 62:
        raise BadRequestError(f"{what} must be a number, 0 or more")
    return number


def _encoded(value: object, schema: pb.Schema | None) -> bytes:
    kind = "NONE" if schema is None else next(name for name, number in TYPES.items() if number == schema.type)
    if kind in _TEXTS:
        if kind == "JSON" and not isinstance(value, str):
            return json.dumps(value).encode()
        return _text(value, "payload").encode()
    try:
        document = json.loads(value) if isinstance(value, str) else value
        if kind == "BOOLEAN" and isinstance(document, bool):
            return b"\x01" if document else b"\x00"
        if kind in _WHOLE and whole(document) is not None:
            return struct.pack(_WHOLE[kind], whole(document))
        if kind in _BROKEN and isinstance(document, int | float) and math.isfinite(document):
            return struct.pack(_BROKEN[kind], document)
    except (ValueError, OverflowError, RecursionError, struct.error) as error:
        raise BadRequestError(f"payload is no {kind}: {error}") from error
    raise BadRequestError(f"payload is no {kind}")
