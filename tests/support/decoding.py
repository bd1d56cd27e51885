"""Entries for the decoder to Arrow, and a decoder that goes message by message to compare with."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from magnetar.arrow.columns import COLUMN_TYPES
from magnetar.arrow.decode import Decoder
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.wire.payload import is_batch, parse_metadata, split_batch, split_entry

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
ALL = tuple(COLUMN_TYPES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if ms else None


def entries_of(entries: list[bytes], counts: list[int], first_index: int = 0) -> EntryColumns:
    columns = EntryColumns()
    index = first_index
    for number, (entry, count) in enumerate(zip(entries, counts, strict=True)):
        index += count
        columns.add(7, number, entry, index - 1, 1000 + number)
    return columns


def naive(columns: EntryColumns) -> list[dict[str, Any]]:
    """One row per message, by protobuf objects."""
    rows = []
    for number, entry in enumerate(columns.entries):
        parts = split_entry(entry)
        metadata = parse_metadata(parts.metadata)
        if metadata.HasField("marker_type"):
            continue
        payload = bytes(parts.payload)
        if metadata.compression:
            payload = zlib.decompress(payload)
        messages: list[tuple[Any, bytes]]
        if is_batch(metadata):
            messages = [
                (single, bytes(view)) for single, view in split_batch(payload, metadata.num_messages_in_batch)
            ]
        else:
            messages = [(metadata, payload)]
        last = columns.last_indexes[number]
        for place, (own, value) in enumerate(messages):
            batch_index = place if is_batch(metadata) else -1
            if is_batch(metadata) and own.compacted_out:
                continue
            has_key = own.HasField("partition_key") and not own.null_partition_key
            key = own.partition_key.encode() if has_key else None
            if has_key and own.partition_key_b64_encoded:
                key = base64.b64decode(own.partition_key)
            sequence_id = metadata.sequence_id
            if is_batch(metadata):
                sequence_id = own.sequence_id if own.HasField("sequence_id") else sequence_id + place
            rows.append(
                {
                    "value": None if own.null_value else value,
                    "key": key,
                    "key_is_string": not own.partition_key_b64_encoded if has_key else None,
                    "topic": "persistent://public/default/t",
                    "partition": 3,
                    "message_id": f"7:{columns.entry_ids[number]}:3:{batch_index}",
                    "entry_index": None if last < 0 else last - len(messages) + 1 + place,
                    "publish_time": EPOCH + timedelta(milliseconds=metadata.publish_time),
                    "event_time": at(own.event_time),
                    "properties": [(pair.key, pair.value) for pair in own.properties],
                    "producer_name": metadata.producer_name,
                    "sequence_id": sequence_id,
                    "ordering_key": own.ordering_key if own.HasField("ordering_key") else None,
                    "schema_version": metadata.schema_version
                    if metadata.HasField("schema_version")
                    else None,
                    "redelivery_count": 0,
                    "replicated_from": metadata.replicated_from or None,
                    "is_null_value": own.null_value,
                }
            )
    return rows


def decoded(columns: EntryColumns, names: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    return [row for batch in Decoder(TOPIC, names).decode(columns) for row in batch.to_pylist()]
