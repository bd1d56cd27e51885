"""Encodes text to payloads, by the topic's newest schema."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.schemas import avro_plain as avro
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.client import Client

_BYTES: Final[dict[int, int]] = {
    pb.Schema.Int8: 1,
    pb.Schema.Int16: 2,
    pb.Schema.Int32: 4,
    pb.Schema.Int64: 8,
    pb.Schema.Date: 8,
    pb.Schema.Time: 8,
    pb.Schema.Timestamp: 8,
}
"""Sizes, in bytes, of the types of whole numbers."""


class UnfitValueError(MagnetarError):
    """A text cannot be encoded by the topic's schema."""


class Encoder:
    """Encodes payloads for one topic."""

    def __init__(self, client: Client, topic: TopicName) -> None:
        """Requests the newest schema. Raises RefusedError, UnreachableError."""
        self._schema = client.schema(topic.base)
        self._topic = topic

    @property
    def version(self) -> bytes:
        """Version of the schema; empty when the topic has none."""
        return b"" if self._schema is None else self._schema.version

    def payload(self, text: bytes) -> bytes:
        """The payload of a value in JSON; the text unchanged when the topic has no schema. Raises
        UnfitValueError."""
        if self._schema is None:
            return text
        try:
            return encode_payload(self._schema.type, self._schema.data, text)
        except (ValueError, TypeError, struct.error, OverflowError, avro.AvroError) as error:
            raise UnfitValueError(
                f"{text[:60].decode('utf-8', 'replace')!r} does not follow the schema of {self._topic}:"
                f" {error}; see `magnetar schemas get`, or send it unchanged with --raw"
            ) from error


def encode_payload(kind: int, definition: bytes, text: bytes) -> bytes:
    """Encodes a text by a schema. Raises AvroError, ValueError, struct.error, OverflowError."""
    if kind in (pb.Schema.String, getattr(pb.Schema, "None")):
        return text
    if kind == pb.Schema.Json:
        json.loads(text)
        return text
    if kind == pb.Schema.Avro:
        return avro.encode(json.loads(definition), json.loads(text))
    if kind in _BYTES:
        return int(text).to_bytes(_BYTES[kind], "big", signed=True)
    if kind == pb.Schema.Float:
        return struct.pack(">f", float(text))
    if kind == pb.Schema.Double:
        return struct.pack(">d", float(text))
    if kind == pb.Schema.Bool and text in (b"true", b"false"):
        return b"\x01" if text == b"true" else b"\x00"
    raise ValueError("values of this type cannot be written as text")
