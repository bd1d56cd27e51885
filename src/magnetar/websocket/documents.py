"""The JSON documents of clients (pure).

    to a producer     {"payload": base64, "properties": {}, "context": text, "key": text,
                       "replicationClusters": [], "eventTime": ISO 8601, "deliverAt": ms,
                       "deliverAfterMs": ms, "sequenceId": n}
    its answer        {"result": "ok", "messageId": base64, "context": text}
                      {"result": "send-error:7", "errorMsg": text, "context": text}
    from a consumer   {"messageId": base64, "payload": base64, "properties": {}, "publishTime": ISO 8601,
                       "redeliveryCount": n, "eventTime": ISO 8601, "key": text, "encryptionContext": {},
                       "topic": name (of consumers of several topics)}
    to a consumer     {"messageId": base64}, also with "type": "negativeAcknowledge"
                      {"type": "permit", "permitMessages": n}
                      {"type": "unsubscribe"}, {"type": "isEndOfTopic"}
    its answer        {"endOfTopic": true}

A message id is the protocol's MessageIdData in base64.

Source: Pulsar's WebSocket API. `sequenceId` and `topic` are additions: with the first, a client that
reconnects can rely on deduplication.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.websocket.deliveries import Incoming
from magnetar.websocket.errors import Fault, MessageError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.commands import message_id_data

PERMITS_MAX: Final = (1 << 31) - 1
"""Most permits of one `permit`; the protocol counts in 32 bits."""

BATCH_MAX: Final = 1 << 20
"""Largest batch size in a client's message id."""
_PIECE_BYTES: Final = 96 << 10
"""Bytes of a payload in a piece of a document; a multiple of three, so that base64 has no gaps."""
_NUMBER_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be published."""

    payload: bytes
    context: str | None
    key: str | None
    properties: Mapping[str, str]
    event_ms: int
    """Event time, Unix ms; 0: not set."""
    deliver_at_ms: int | None
    replicate_to: tuple[str, ...] | None
    """Clusters; None: those of the namespace."""
    sequence_id: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """A request of a consumer's or reader's client."""

    kind: str
    """"ack", "negativeAcknowledge", "permit", "unsubscribe" or "isEndOfTopic"."""
    message_id: str = ""
    """The message id as the client wrote it."""
    permits: int = 0


_QUOTES_MAX: Final = 10_000
"""Most quotes and brackets of a text, enough for two thousand properties. A text of 6 MiB may hold a million
parts, whose parsing takes most of a second."""


def outgoing_of(text: str, now_ms: int) -> Outgoing:
    """Reads a producer's message. Raises MessageError."""
    document = _object(text)
    context = _text(document, "context")
    try:
        payload = document.get("payload")
        if not isinstance(payload, str):
            raise MessageError(Fault.NOT_BASE64, "the message has no payload", context)
        data = b64decode(payload, validate=True)
    except (ValueError, binascii.Error) as error:
        reason = f"Invalid Base64 message-payload error={error}"
        raise MessageError(Fault.NOT_BASE64, reason, context) from error
    deliver_at_ms = _number(document, "deliverAt", context)
    after_ms = _number(document, "deliverAfterMs", context)
    if after_ms:
        deliver_at_ms = min(now_ms + after_ms, _NUMBER_MAX)
    return Outgoing(
        payload=data,
        context=context,
        key=_text(document, "key"),
        properties=_properties(document, context),
        event_ms=_event_ms(document.get("eventTime"), context),
        deliver_at_ms=deliver_at_ms or None,
        replicate_to=_clusters(document, context),
        sequence_id=_number(document, "sequenceId", context),
    )


def published(message_id: str, context: str | None) -> str:
    """The answer for a stored message."""
    answer = {"result": "ok", "messageId": message_id}
    return _encoded(answer if context is None else {**answer, "context": context})


def not_published(error: MessageError) -> str:
    """The answer for a message that was not stored."""
    answer = {"result": f"send-error:{error.fault.number}", "errorMsg": str(error)}
    return _encoded(answer if error.context is None else {**answer, "context": error.context})


def delivered(message: Incoming, message_id: str, topic: TopicName | None = None) -> str:
    """The document of a message for a consumer or reader. `topic`: its topic, for consumers of several
    topics."""
    return "".join(delivered_in_pieces(message, message_id, topic))


def delivered_in_pieces(message: Incoming, message_id: str, topic: TopicName | None = None) -> Iterator[str]:
    """The same in pieces of at most some hundred kilobytes besides properties: two or more. Each is made when
    it is asked for."""
    document: dict[str, object] = {
        "properties": message.properties,
        "publishTime": _time(message.publish_ms),
        "redeliveryCount": message.redelivery_count,
    }
    if topic is not None:
        document["topic"] = str(topic)
    if message.event_ms:
        document["eventTime"] = _time(message.event_ms)
    if message.key is not None:
        document["key"] = message.key
    if message.encryption is not None:
        document["encryptionContext"] = message.encryption
    yield f'{{"messageId":"{message_id}","payload":"'
    # base64 needs no escapes in JSON, and may be long.
    with memoryview(message.payload) as view:
        for at in range(0, len(view), _PIECE_BYTES):
            yield b64encode(view[at : at + _PIECE_BYTES]).decode()
    yield f'",{_encoded(document)[1:]}'


def order_of(text: str) -> Order:
    """Reads a request of a consumer's client. Raises MessageError."""
    document = _object(text)
    kind = document.get("type") or "ack"
    if kind in ("unsubscribe", "isEndOfTopic"):
        return Order(kind)
    if kind == "permit":
        permits = document.get("permitMessages")
        if isinstance(permits, bool) or not isinstance(permits, int) or not 0 <= permits <= PERMITS_MAX:
            raise MessageError(Fault.NOT_JSON, "permitMessages must be a number")
        return Order("permit", permits=permits)
    message_id = document.get("messageId")
    if not isinstance(message_id, str):
        raise MessageError(Fault.NOT_JSON, "messageId is missing")
    # For all other types Pulsar's broker counts the message as acknowledged.
    return Order("negativeAcknowledge" if kind == "negativeAcknowledge" else "ack", message_id)


def end_of_topic(*, reached: bool) -> str:
    """The answer to `isEndOfTopic`."""
    return _encoded({"endOfTopic": reached})


# -- message ids -----------------------------------------------------------------------------------------


def message_id(position: Position, *, partition: int = -1, batch_index: int = -1, batch_size: int = 0) -> str:
    """The message id for clients."""
    data = message_id_data(position, partition=partition, batch_index=batch_index)
    if batch_size:
        data.batch_size = batch_size
    return b64encode(data.SerializeToString()).decode()


def message_id_of(text: str) -> pb.MessageIdData:
    """The inverse of `message_id`. Raises MessageError."""
    try:
        data = pb.MessageIdData.FromString(b64decode(text, validate=True))
    except (ValueError, binascii.Error, DecodeError) as error:
        raise MessageError(Fault.NOT_JSON, "messageId is not a message id") from error
    if not data.IsInitialized() or not data.batch_size <= BATCH_MAX:
        raise MessageError(Fault.NOT_JSON, "messageId is not a message id")
    return data


def all_but(index: int, size: int) -> tuple[int, ...]:
    """The ack set that acknowledges one message of a batch: words of 64 bits, with a bit for each message
    that is left."""
    words = [_WORD] * (size >> 6)
    if size & 63:
        words.append((1 << (size & 63)) - 1)
    words[index >> 6] &= ~(1 << (index & 63))
    return tuple(words)


_WORD: Final = (1 << 64) - 1


# -- fields ----------------------------------------------------------------------------------------------


def _object(text: str) -> dict[str, object]:
    if text.count('"') + text.count("[") + text.count("{") > _QUOTES_MAX:
        raise MessageError(Fault.NOT_JSON, "not JSON of a message: it has too many parts")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(Fault.NOT_JSON, f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MessageError(Fault.NOT_JSON, "not a JSON object")
    return document


def _text(document: dict[str, object], name: str) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    text = _as_text(value)
    if text is None:
        raise MessageError(Fault.NOT_JSON, f"{name} must be a text")
    return text


def _as_text(value: object) -> str | None:
    """A text, or a number as text: Pulsar accepts both, and its own examples send numbers."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) and _has_utf8(value) else None


def _has_utf8(text: str) -> bool:
    # JSON can hold a lone surrogate, which has no UTF-8 form.
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _number(document: dict[str, object], name: str, context: str | None) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MAX:
        raise MessageError(Fault.NOT_JSON, f"{name} must be a number", context)
    return value


def _properties(document: dict[str, object], context: str | None) -> Mapping[str, str]:
    value = document.get("properties") or {}
    found: dict[str, str] = {}
    for key, each in value.items() if isinstance(value, dict) else (("", None),):
        text, name = _as_text(each), _as_text(key)
        if text is None or name is None:
            raise MessageError(Fault.NOT_JSON, "properties must be an object of texts", context)
        found[name] = text
    return found


def _clusters(document: dict[str, object], context: str | None) -> tuple[str, ...] | None:
    value = document.get("replicationClusters")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and _has_utf8(each) for each in value):
        raise MessageError(Fault.NOT_JSON, "replicationClusters must be a list of texts", context)
    return tuple(value)


def _event_ms(value: object, context: str | None) -> int:
    if value is None:
        return 0
    try:
        moment = datetime.fromisoformat(str(value))
        if moment.tzinfo is None:
            raise ValueError(f"eventTime {value!r} has no time zone")
    except ValueError as error:
        raise MessageError(Fault.NOT_BASE64, str(error), context) from error
    return max(0, round(moment.timestamp() * 1000))


def _time(ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        # The producer's time is beyond the range of the calendar.
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encoded(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
