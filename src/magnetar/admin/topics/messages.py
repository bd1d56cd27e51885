"""`/admin/v2/persistent`: positions of messages, and single stored messages.

The answer for a message is as in Pulsar: the body is the uncompressed payload, and `X-Pulsar-*` headers hold
the metadata. A batch is one entry and is returned whole, in the batch's own framing.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from functools import partial
from typing import Final

from magnetar.admin.calls.call import Call, Raw, Route, natural, position_document
from magnetar.admin.calls.errors import (
    BadRequestError,
    NotHereError,
    NotImplementedHereError,
    UnreadablePayloadError,
)
from magnetar.admin.subscriptions.subscriptions import find, nth_unacked
from magnetar.admin.topics.topics import loaded, refuse_partitioned
from magnetar.base.entries import EntryRun
from magnetar.base.expressions import as_text
from magnetar.base.ids import LedgerId, Position
from magnetar.base.large_bytes import LARGE_BYTES
from magnetar.base.names import TopicName
from magnetar.broker.topic.topic import Topic
from magnetar.client.compression import UnknownCompressionError, plain_within
from magnetar.client.errors import PayloadError
from magnetar.runtime.threads import in_thread, in_turn
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb

PLAIN_BYTES_MAX: Final = 64 << 20
"""Most bytes of a payload that is decompressed for an answer, far above what a producer may send."""

_METADATA_BYTES: Final = 64 << 10
"""Larger metadata are not read on the event loop."""

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


async def _one(call: Call, what: str) -> Topic:
    name = call.topic()
    await refuse_partitioned(call.broker, name, what)
    return await loaded(call.broker, name)


# -- positions ---------------------------------------------------------------------------------------


async def last_message_id(call: Call) -> object:
    topic = await _one(call, "the last message")
    position, batch_index = await topic.last_message()
    document = position_document(position, topic.name)
    return document if batch_index < 0 else {**document, "batchIndex": batch_index}


async def message_id_of_time(call: Call) -> object:
    """First entry stored at the time (Unix ms) or later; the position after the last one if none."""
    topic = await _one(call, "a message by time")
    return position_document(await topic.log.position_of_time(call.integer("timestamp")), topic.name)


async def message_id_of_index(call: Call) -> object:
    """The entry that holds the message with that index (PIP-70)."""
    topic = await _one(call, "a message by index")
    text = call.query.get("index")
    if text is None:
        raise BadRequestError("query parameter index is missing: which message?")
    index = natural(text, "index")
    following = topic.log.next_index
    if index >= following:
        raise NotHereError(f"{topic.name} has no message with index {index}; the next will be {following}")
    return position_document(await topic.log.position_of_index(index), topic.name)


# -- messages ----------------------------------------------------------------------------------------


async def entry(call: Call) -> object:
    topic = await _one(call, "reading an entry")
    return await _message(topic, Position(LedgerId(call.integer("ledger")), call.integer("entry")))


async def peek(call: Call) -> object:
    """The n-th message, from 1, that the subscription has not acknowledged. It stays unacknowledged.

    A missing subscription is created at the first message, as in Pulsar.
    """
    topic = await _one(call, "Peek messages")
    number = call.integer("number")
    if number < 1:
        raise BadRequestError("messages are numbered from 1")
    name = call.params["subscription"]
    if name not in topic.subscriptions:
        await topic.subscription(name, initial_earliest=True, start=None, properties={})
    subscription = find(topic, name)
    if number > subscription.cursor.backlog_entries:
        remedy = f"the backlog of {name} has {subscription.cursor.backlog_entries} entries"
        raise NotHereError("Message not found", remedy=remedy)
    return await _message(topic, await nth_unacked(topic, subscription, number))


async def examine(call: Call) -> object:
    """The n-th entry from the start (`initialPosition=earliest`) or from the end of the topic."""
    topic = await _one(call, "examining a message")
    number = max(1, natural(call.query.get("messagePosition", "1"), "messagePosition"))
    from_end = call.query.get("initialPosition", "latest").lower() != "earliest"
    log = topic.log
    info = log.info()
    if number > info.entries:
        raise NotHereError(f"{topic.name} has {info.entries} entries")
    skipped = info.entries - number if from_end else number - 1
    for ledger in info.ledgers:
        if skipped < ledger.entries:
            return await _message(topic, Position(ledger.ledger_id, skipped))
        skipped -= ledger.entries
    raise NotHereError(f"{topic.name} has no entry {number}")


async def _message(topic: Topic, position: Position) -> Raw:
    runs = await topic.log.read(position, 1, 1)
    if not runs or (runs[0].ledger_id, runs[0].first_entry) != position:
        raise NotHereError(f"{topic.name} has no entry {position}")
    beside = in_turn if _is_large(runs[0].entries[0]) else in_thread
    return await beside(partial(message_answer, topic.name, runs[0]))


def _is_large(entry: bytes) -> bool:
    """Whether opening the entry takes so much that it waits for others of its kind."""
    parts = payload.split_entry(entry)
    if len(parts.metadata) > _METADATA_BYTES:
        return True
    metadata = payload.parse_metadata(parts.metadata)
    return metadata.compression != pb.NONE and metadata.uncompressed_size >= LARGE_BYTES


def message_answer(name: TopicName, run: EntryRun) -> Raw:
    """The answer for the first entry of a run. Raises NotImplementedHereError for a missing codec."""
    parts = payload.split_entry(run.entries[0])
    metadata = payload.parse_metadata(parts.metadata)
    position = f"{run.ledger_id}:{run.first_entry}"
    headers = {
        "X-Pulsar-Message-ID": position if name.partition < 0 else f"{position}:{name.partition}",
        "X-Pulsar-producer-name": as_text(metadata.producer_name),
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-publish-time": _time(metadata.publish_time),
        "X-Pulsar-Broker-Entry-METADATA-timestamp": _time(run.broker_time_ms),
        "X-Pulsar-Broker-Entry-METADATA-index": str(run.base_index + run.count_of(0) - 1),
        **_optional_headers(metadata),
    }
    stored = bytes(parts.payload)
    body = stored if metadata.encryption_keys else _plain(stored, metadata)
    if metadata.encryption_keys:
        headers["X-Pulsar-Is-Encrypted"] = "true"
    if payload.is_batch(metadata):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(body))
    return Raw(body, headers={key: _header(value) for key, value in headers.items()})


def _optional_headers(metadata: pb.MessageMetadata) -> dict[str, str]:
    headers: dict[str, str] = {}
    if metadata.properties:
        properties = {as_text(item.key): as_text(item.value) for item in metadata.properties}
        headers["X-Pulsar-PROPERTY"] = json.dumps(properties, separators=(",", ":"))
    if metadata.HasField("event_time") and metadata.event_time:
        headers["X-Pulsar-event-time"] = _time(metadata.event_time)
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = _time(metadata.deliver_at_time)
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = as_text(metadata.partition_key)
        headers["X-Pulsar-partition-key-b64-encoded"] = str(metadata.partition_key_b64_encoded).lower()
    if metadata.HasField("ordering_key"):
        headers["X-Pulsar-Base64-ordering-key-b64encoded"] = base64.b64encode(metadata.ordering_key).decode()
    if metadata.HasField("schema_version"):
        headers["X-Pulsar-Base64-schema-version-b64encoded"] = base64.b64encode(
            metadata.schema_version
        ).decode()
    if metadata.HasField("replicated_from"):
        headers["X-Pulsar-replicated-from"] = as_text(metadata.replicated_from)
    if metadata.HasField("null_value"):
        headers["X-Pulsar-null-value"] = str(metadata.null_value).lower()
    if metadata.compression:
        headers["X-Pulsar-compression"] = pb.CompressionType.Name(metadata.compression)
        headers["X-Pulsar-uncompressed-size"] = str(metadata.uncompressed_size)
    return headers


def _plain(body: bytes, metadata: pb.MessageMetadata) -> bytes | memoryview:
    """The uncompressed payload. The producer names its size, which is bounded before memory is allocated."""
    size = metadata.uncompressed_size
    if metadata.compression == pb.NONE:
        return body
    if size > PLAIN_BYTES_MAX:
        raise NotImplementedHereError(f"the message has {size} bytes; at most {PLAIN_BYTES_MAX} are shown")
    try:
        return plain_within(metadata.compression, body, size)
    except UnknownCompressionError as error:
        raise NotImplementedHereError(
            "the message is compressed, and reading it here needs the package cramjam:"
            " pip install '.[spark]' in a clone, where the broker runs"
        ) from error
    except PayloadError as error:
        raise UnreadablePayloadError(str(error)) from error


def _time(ms: int) -> str:
    """ISO 8601 with milliseconds, UTC; the number itself when it is beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    return moment.isoformat(timespec="milliseconds")


def _header(value: str) -> str:
    """A client's text as a header value; characters other than visible ASCII are escaped as in JSON."""
    return (
        json.dumps(value)[1:-1].replace('\\"', '"')
        if not value.isprintable() or not value.isascii()
        else value
    )


ROUTES: list[Route] = [
    ("GET", f"{_T}/lastMessageId", last_message_id),
    ("GET", f"{_T}/messageid/{{timestamp}}", message_id_of_time),
    ("GET", f"{_T}/getMessageIdByIndex", message_id_of_index),
    ("GET", f"{_T}/ledger/{{ledger}}/entry/{{entry}}", entry),
    ("GET", f"{_T}/subscription/{{subscription}}/position/{{number}}", peek),
    ("GET", f"{_T}/examinemessage", examine),
]
