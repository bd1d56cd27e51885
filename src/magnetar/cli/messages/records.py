"""Opens entries as messages: reads metadata, opens batches, decompresses payloads."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.compression import decompress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, entry_layout, is_batch, parse_metadata, split_batch


@dataclass(slots=True, kw_only=True)
class Record:
    """One message."""

    topic: TopicName
    position: Position
    batch_index: int
    """Index of the message in its batch; -1 outside of batches."""
    is_last: bool
    """Whether the message is the last one of its entry."""
    payload: bytes
    """Decompressed bytes; an encrypted payload is as its producer sent it."""
    key: str | None
    properties: Mapping[str, str]
    publish_time_ms: int
    event_time_ms: int | None
    broker_time_ms: int | None
    index: int | None
    """Number of the message in its topic or partition, from 0; None when the broker does not tell it."""
    producer: str
    sequence_id: int
    schema_version: bytes
    encrypted: bool
    is_null: bool
    """Whether the message has no value; compaction then deletes its key."""
    transaction: str | None = None
    """The transaction of the message as `(coordinator,number)`; "-" without one; None: not requested."""
    transaction_state: str | None = None
    """open, committed or aborted; plain without a transaction; None: not requested."""

    @property
    def id(self) -> str:
        """The message id in the notation of clients: ledger:entry[:partition[:batch index]]."""
        text = f"{self.position.ledger_id}:{self.position.entry_id}"
        if self.topic.partition >= 0 or self.batch_index >= 0:
            text += f":{self.topic.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @property
    def time_ms(self) -> int:
        """Time at which the broker received the message, in Unix milliseconds; its publish time when the
        broker does not tell it."""
        return self.publish_time_ms if self.broker_time_ms is None else self.broker_time_ms

    def document(self, value: object) -> dict[str, object]:
        """All known fields, and `value`, the decoded value; `base64` is the payload, when the value does not
        tell it."""
        found: dict[str, object] = {
            "topic": str(self.topic),
            "id": self.id,
            "index": self.index,
            "publish_time": self.publish_time_ms,
            "event_time": self.event_time_ms,
            "broker_time": self.broker_time_ms,
            "producer": self.producer,
            "sequence_id": self.sequence_id,
            "key": self.key,
            "properties": dict(self.properties),
            "value": value,
            "size": len(self.payload),
            "transaction": self.transaction,
            "transaction_state": self.transaction_state,
        }
        if self.encrypted:
            found["encrypted"] = True
        if not self.is_null and not _said_by(value, self.payload):
            found["base64"] = base64.b64encode(self.payload).decode()
        return {key: each for key, each in found.items() if each is not None or key in ("key", "value")}


def records_of(topic: TopicName, columns: EntryColumns) -> Iterator[Record]:
    """Yields all messages of the entries, in order. Raises PayloadError for an entry that cannot be read."""
    for row, entry in enumerate(columns.entries):
        position = columns.position(row)
        try:
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
            if metadata.HasField("marker_type"):
                continue
            index = columns.last_indexes[row]
            time_ms = columns.broker_times_ms[row]
            yield from _messages(
                topic,
                position,
                metadata,
                entry[payload_at:],
                None if index < 0 else index,
                None if time_ms < 0 else time_ms,
            )
        except EntryError as error:
            raise PayloadError(f"entry {position} of {topic} cannot be read: {error}") from error


def _messages(
    topic: TopicName,
    position: Position,
    metadata: pb.MessageMetadata,
    payload: bytes,
    last_index: int | None,
    time_ms: int | None,
) -> Iterator[Record]:
    encrypted = bool(metadata.encryption_keys)
    # Pieces of a large message were compressed before they were cut.
    is_piece = metadata.num_chunks_from_msg > 1
    if not encrypted and not is_piece and metadata.compression != pb.CompressionType.NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size, topic)
    shared: dict[str, Any] = {
        "topic": topic,
        "position": position,
        "publish_time_ms": metadata.publish_time,
        "broker_time_ms": time_ms,
        "producer": metadata.producer_name,
        "schema_version": metadata.schema_version,
        "encrypted": encrypted,
    }
    if encrypted or not is_batch(metadata):
        yield Record(
            batch_index=-1,
            is_last=True,
            payload=payload,
            index=last_index,
            sequence_id=metadata.sequence_id,
            **_said(metadata),
            **shared,
        )
        return
    count = metadata.num_messages_in_batch
    for number, (single, view) in enumerate(split_batch(payload, count)):
        if single.compacted_out:
            continue
        yield Record(
            batch_index=number,
            is_last=number == count - 1,
            payload=bytes(view),
            index=None if last_index is None else last_index - count + 1 + number,
            sequence_id=single.sequence_id
            if single.HasField("sequence_id")
            else metadata.sequence_id + number,
            **_said(single),
            **shared,
        )


def _said(metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> dict[str, Any]:
    """The fields that metadata of an entry and metadata of a message in a batch have in common."""
    key: str | None = metadata.partition_key if metadata.HasField("partition_key") else None
    if key is not None and metadata.partition_key_b64_encoded:
        raw = base64.b64decode(key)
        key = raw.decode("utf-8", "backslashreplace")
    return {
        "key": key,
        "properties": {pair.key: pair.value for pair in metadata.properties},
        "event_time_ms": metadata.event_time or None,
        "is_null": metadata.null_value,
    }


def _said_by(value: object, payload: bytes) -> bool:
    """Whether the payload is the value as text or as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") == payload
    if isinstance(value, bytes):
        return False
    try:
        return bool(json.loads(payload) == value)
    except ValueError:
        return False
