"""Columns of messages, one method each.

Fields of an entry are looked up by the entry of each message; own fields of a message in a batch are read
from the batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow import metadata_fields as number
from magnetar.arrow.columns import EXTRA_TYPES
from magnetar.arrow.fields import Bools, Bytes, Fields, Ints
from magnetar.arrow.values import Values
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout, parse_metadata


class MessageRows:
    """The messages of some entries, before they become columns."""

    __slots__ = (
        "array",
        "batch_index",
        "buffer",
        "count_of_entry",
        "entry",
        "is_batch",
        "payload_end",
        "payload_start",
        "singles",
    )

    buffer: bytes
    """The payloads, and the messages' own metadata when they come from batches."""
    array: Bytes
    entry: Ints
    """Index of the entry of each message."""
    batch_index: Ints
    payload_start: Ints
    payload_end: Ints
    count_of_entry: Ints
    """Number of messages in the entry of each message."""
    is_batch: bool
    singles: Fields | None
    """SingleMessageMetadata of each message when they come from batches; else None."""


class MessageColumns:
    """Builds columns of one delivery's messages; the methods are the columns' names."""

    def __init__(
        self,
        topic: TopicName,
        base: str,
        entries: EntryColumns,
        entry_array: Bytes,
        fields: Fields,
        rows: MessageRows,
        values: Values | None = None,
    ) -> None:
        self._values = values
        self._topic = topic
        self._base = base
        self._entries = entries
        self._entry_array = entry_array
        self._fields = fields
        self._rows = rows
        self._count = len(rows.entry)

    def _of_entries(self, values: Ints) -> Ints:
        return values[self._rows.entry]

    def _nulls(self) -> Bools:
        singles = self._rows.singles
        if singles is not None and singles.has(number.S_NULL_VALUE):
            return singles.flags(number.S_NULL_VALUE)
        return self._fields.flags(number.NULL_VALUE)[self._rows.entry]

    def value(self) -> pa.Array:
        rows = self._rows
        if self._values is not None:
            return self._values.decode(
                rows.array, rows.payload_start, rows.payload_end, ~self._nulls(), self._of_message
            )
        return self.payload()

    def payload(self) -> pa.Array:
        rows = self._rows
        values = arrays.slices(rows.buffer, rows.payload_start, rows.payload_end)
        return arrays.with_nulls(values, self._nulls())

    def _of_message(self, name: str) -> pa.Array:
        """Another column, for decoders of values that need one."""
        column: pa.Array = getattr(self, name)()
        return column

    def is_null_value(self) -> pa.Array:
        return pa.array(self._nulls())

    def _bytes_of(self, field: int, single_field: int) -> tuple[pa.Array, Bools]:
        """A field that is in the metadata of a message in a batch, or else in its entry's metadata."""
        rows = self._rows
        if rows.singles is not None:
            starts, ends, present = rows.singles.last_spans(single_field)
            return arrays.slices(rows.buffer, starts, ends), present
        starts, ends, present = self._fields.last_spans(field)
        chosen = rows.entry
        return arrays.slices(self._entry_array, starts[chosen], ends[chosen]), present[chosen]

    def _flag_of(self, field: int, single_field: int) -> Bools:
        singles = self._rows.singles
        if singles is not None:
            return singles.flags(single_field)
        return self._fields.flags(field)[self._rows.entry]

    def _has_key(self, present: Bools) -> Bools:
        return present & ~self._flag_of(number.NULL_KEY, number.S_NULL_KEY)

    def key(self) -> pa.Array:
        keys, present = self._bytes_of(number.KEY, number.S_KEY)
        present = self._has_key(present)
        is_base64 = self._flag_of(number.KEY_IS_BASE64, number.S_KEY_IS_BASE64) & present
        if is_base64.any():
            keys = arrays.decode_base64(keys, is_base64)
        return arrays.with_nulls(keys, ~present)

    def key_is_string(self) -> pa.Array:
        _, present = self._bytes_of(number.KEY, number.S_KEY)
        is_base64 = self._flag_of(number.KEY_IS_BASE64, number.S_KEY_IS_BASE64)
        return pa.array(~is_base64, mask=~self._has_key(present))

    def ordering_key(self) -> pa.Array:
        keys, present = self._bytes_of(number.ORDERING_KEY, number.S_ORDERING_KEY)
        return arrays.with_nulls(keys, ~present)

    def topic(self) -> pa.Array:
        return pa.repeat(self._base, self._count)

    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._topic.partition, pa.int32()), self._count)

    def redelivery_count(self) -> pa.Array:
        return pa.repeat(pa.scalar(0, pa.int32()), self._count)

    def message_id(self) -> pa.Array:
        entries = self._entries
        partition = self._topic.partition
        heads = pa.array(
            [
                f"{ledger_id}:{entry_id}:{partition}:"
                for ledger_id, entry_id in zip(entries.ledger_ids, entries.entry_ids, strict=True)
            ],
            pa.string(),
        )
        return arrays.join(heads.take(pa.array(self._rows.entry)), self._rows.batch_index)

    def ledger_id(self) -> pa.Array:
        return pa.array(self._of_entries(np.array(self._entries.ledger_ids, np.int64)))

    def entry_id(self) -> pa.Array:
        return pa.array(self._of_entries(np.array(self._entries.entry_ids, np.int64)))

    def batch_index(self) -> pa.Array:
        return pa.array(self._rows.batch_index.astype(np.int32))

    def broker_time(self) -> pa.Array:
        times = self._of_entries(np.array(self._entries.broker_times_ms, np.int64))
        return arrays.timestamps(times, times < 0)

    def entry_index(self) -> pa.Array:
        rows = self._rows
        last = self._of_entries(np.array(self._entries.last_indexes, np.int64))
        index = last - rows.count_of_entry + 1 + np.maximum(rows.batch_index, 0)
        unknown = last < 0
        return pa.array(index, mask=unknown) if unknown.any() else pa.array(index)

    def publish_time(self) -> pa.Array:
        return arrays.timestamps(self._of_entries(self._fields.numbers(number.PUBLISH_TIME)), None)

    def event_time(self) -> pa.Array:
        singles = self._rows.singles
        if singles is not None:
            times = singles.numbers(number.S_EVENT_TIME)
        else:
            times = self._of_entries(self._fields.numbers(number.EVENT_TIME))
        return arrays.timestamps(times, times == 0)

    def properties(self) -> pa.Array:
        rows = self._rows
        if rows.singles is not None:
            return arrays.string_maps(rows.array, rows.singles.spans(number.S_PROPERTIES), self._count)
        maps = arrays.string_maps(
            self._entry_array, self._fields.spans(number.PROPERTIES), len(self._entries)
        )
        return maps.take(pa.array(rows.entry))

    def headers(self) -> pa.Array:
        rows = self._rows
        if rows.singles is not None:
            return arrays.string_pairs(rows.array, rows.singles.spans(number.S_PROPERTIES), self._count)
        lists = arrays.string_pairs(
            self._entry_array, self._fields.spans(number.PROPERTIES), len(self._entries)
        )
        return lists.take(pa.array(rows.entry))

    def encryption(self) -> pa.Array:
        kind = arrays.ARROW_TYPES[EXTRA_TYPES["encryption"]]
        sealed = set(self._fields.spans(number.ENCRYPTION_KEYS).rows.tolist())
        if not sealed:
            return pa.nulls(self._count, kind)
        # Rare, and one row each: by protobuf's own objects.
        return pa.array(
            [
                _encryption(self._entries.entries[row]) if row in sealed else None
                for row in self._rows.entry.tolist()
            ],
            kind,
        )

    def _of_entry_text(self, field: int, kind: pa.DataType) -> pa.Array:
        starts, ends, present = self._fields.last_spans(field)
        texts = arrays.with_nulls(arrays.slices(self._entry_array, starts, ends), ~present)
        return texts.take(pa.array(self._rows.entry)).cast(kind)

    def producer_name(self) -> pa.Array:
        return self._of_entry_text(number.PRODUCER_NAME, pa.string())

    def replicated_from(self) -> pa.Array:
        return self._of_entry_text(number.REPLICATED_FROM, pa.string())

    def schema_version(self) -> pa.Array:
        return self._of_entry_text(number.SCHEMA_VERSION, pa.binary())

    def sequence_id(self) -> pa.Array:
        of_entry = self._of_entries(self._fields.numbers(number.SEQUENCE_ID))
        singles = self._rows.singles
        if singles is None:
            return pa.array(of_entry)
        own = singles.present(number.S_SEQUENCE_ID)
        # Messages of a batch without sequence ids are numbered from the first one.
        numbered = of_entry + self._rows.batch_index
        return pa.array(np.where(own, singles.numbers(number.S_SEQUENCE_ID), numbered))


def _encryption(entry: bytes) -> dict[str, object]:
    """The encryption fields of an entry's metadata."""
    _, metadata_at, payload_at = entry_layout(entry)
    metadata = parse_metadata(entry[metadata_at:payload_at])
    return {
        "algorithm": metadata.encryption_algo or None,
        "param": metadata.encryption_param or None,
        "keys": [{"name": key.key, "value": key.value} for key in metadata.encryption_keys],
        "compression": pb.CompressionType.Name(metadata.compression),
        "plain_bytes": metadata.uncompressed_size,
        "messages": metadata.num_messages_in_batch,
    }
