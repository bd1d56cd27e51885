"""Entries become Arrow record batches.

The entries of one delivery are one buffer. Metadata of all entries, and of all messages in their batches, are
read as columns (`fields`); payloads stay where they are until one pass of Arrow's own code copies them
into the value column. No Python object is made for a message. Columns that nobody asked for cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.base.names import TopicName
from magnetar.client.compression import decompress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.spark import arrays
from magnetar.spark.batches import BatchSpans, batch_spans
from magnetar.spark.chunks import ChunkAssembler
from magnetar.spark.fields import PADDING, Bools, Bytes, Fields, Ints, big_endian_u32, parse_fields

_PRODUCER_NAME: Final = 1
_SEQUENCE_ID: Final = 2
_PUBLISH_TIME: Final = 3
_PROPERTIES: Final = 4
_REPLICATED_FROM: Final = 5
_KEY: Final = 6
_COMPRESSION: Final = 8
_PLAIN_SIZE: Final = 9
_BATCH_COUNT: Final = 11
_EVENT_TIME: Final = 12
_ENCRYPTION_KEYS: Final = 13
_SCHEMA_VERSION: Final = 16
_KEY_IS_BASE64: Final = 17
_ORDERING_KEY: Final = 18
_MARKER: Final = 20
_NULL_VALUE: Final = 25
_CHUNK_COUNT: Final = 27
_NULL_KEY: Final = 30
_ALWAYS: Final = frozenset(
    (_COMPRESSION, _PLAIN_SIZE, _BATCH_COUNT, _ENCRYPTION_KEYS, _MARKER, _NULL_VALUE, _CHUNK_COUNT)
)
"""Fields of a MessageMetadata without which no entry can be read."""

_COLUMN_FIELDS: Final[dict[str, tuple[int, ...]]] = {
    "key": (_KEY, _KEY_IS_BASE64, _NULL_KEY),
    "key_is_string": (_KEY, _KEY_IS_BASE64, _NULL_KEY),
    "publish_time": (_PUBLISH_TIME,),
    "event_time": (_EVENT_TIME,),
    "properties": (_PROPERTIES,),
    "producer_name": (_PRODUCER_NAME,),
    "sequence_id": (_SEQUENCE_ID,),
    "ordering_key": (_ORDERING_KEY,),
    "schema_version": (_SCHEMA_VERSION,),
    "replicated_from": (_REPLICATED_FROM,),
}

_S_PROPERTIES: Final = 1
_S_KEY: Final = 2
_S_COMPACTED: Final = 4
_S_EVENT_TIME: Final = 5
_S_KEY_IS_BASE64: Final = 6
_S_ORDERING_KEY: Final = 7
_S_SEQUENCE_ID: Final = 8
_S_NULL_VALUE: Final = 9
_S_NULL_KEY: Final = 10
_S_ALWAYS: Final = frozenset((_S_COMPACTED, _S_NULL_VALUE))

_S_COLUMN_FIELDS: Final[dict[str, tuple[int, ...]]] = {
    "key": (_S_KEY, _S_KEY_IS_BASE64, _S_NULL_KEY),
    "key_is_string": (_S_KEY, _S_KEY_IS_BASE64, _S_NULL_KEY),
    "event_time": (_S_EVENT_TIME,),
    "properties": (_S_PROPERTIES,),
    "sequence_id": (_S_SEQUENCE_ID,),
    "ordering_key": (_S_ORDERING_KEY,),
}


class _Rows:
    """Messages of some entries, before they are columns."""

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
    """Holds the payloads, and the messages' own metadata when they come from batches."""
    array: Bytes
    entry: Ints
    """Entry of each message."""
    batch_index: Ints
    payload_start: Ints
    payload_end: Ints
    count_of_entry: Ints
    """Messages of each message's entry."""
    is_batch: bool
    singles: Fields | None
    """SingleMessageMetadata of each message when they come from batches."""


class Decoder:
    """Decodes entries of one topic or partition to the columns asked for."""

    def __init__(self, topic: TopicName, columns: Sequence[str], *, text: bool = False) -> None:
        """`text` gives the value as a string, which the bytes have to be in UTF-8."""
        self._topic = topic
        self._base = str(topic.base)
        self._columns = tuple(columns)
        self.schema = arrays.arrow_schema(self._columns, text=text)
        self._entry_fields = _ALWAYS | {
            field for name in self._columns for field in _COLUMN_FIELDS.get(name, ())
        }
        self._single_fields = _S_ALWAYS | {
            field for name in self._columns for field in _S_COLUMN_FIELDS.get(name, ())
        }
        self._chunks = ChunkAssembler(topic)

    def decode(self, entries: EntryColumns) -> Iterator[pa.RecordBatch]:
        """The messages of these entries, in order. Markers of the broker are left out.

        Raises PayloadError for entries that are encrypted, damaged, or chunks without a beginning.
        """
        if not len(entries):
            return
        buffer = b"".join((*entries.entries, PADDING))
        array = np.frombuffer(buffer, np.uint8)
        sizes = np.fromiter(map(len, entries.entries), np.int64, len(entries))
        ends = np.cumsum(sizes)
        starts = ends - sizes
        has_checksum = (array[starts] == 0x0E) & (array[starts + 1] == 0x01)
        metadata = starts + np.where(has_checksum, 10, 4)
        payload = metadata + big_endian_u32(array, metadata - 4)
        if (payload > ends).any():
            raise PayloadError(f"an entry of {self._topic} is shorter than its metadata says")
        fields = parse_fields(array, metadata, payload, self._entry_fields)
        if fields.has(_CHUNK_COUNT) and (fields.numbers(_CHUNK_COUNT) > 1).any():
            # Pieces are put together first; what comes out has none.
            yield from self.decode(self._chunks.assemble(entries))
            return
        if fields.has(_ENCRYPTION_KEYS):
            first = int(fields.spans(_ENCRYPTION_KEYS).rows[0])
            raise PayloadError(
                f"entry {entries.position(first)} of {self._topic} is encrypted by its producer;"
                " the Spark source cannot decrypt: read the topic with a client that has the keys"
            )
        is_batch = fields.present(_BATCH_COUNT)
        is_marker = fields.present(_MARKER)
        for first, stop in _runs(is_batch, is_marker):
            chosen = np.arange(first, stop)
            if is_batch[first]:
                rows = self._open_batches(buffer, array, fields, payload, ends, chosen)
            else:
                rows = self._plain_entries(buffer, array, fields, payload, ends, chosen)
            if len(rows.entry):
                yield self._record_batch(entries, array, fields, rows)

    def _open_batches(
        self, buffer: bytes, array: Bytes, fields: Fields, payload: Ints, ends: Ints, chosen: Ints
    ) -> _Rows:
        counts = fields.numbers(_BATCH_COUNT)
        kinds = fields.numbers(_COMPRESSION)[chosen]
        starts, stops = payload[chosen], ends[chosen]
        if kinds.any():
            buffer, array, starts, stops = self._plain(buffer, fields, kinds, starts, stops, chosen)
        spans: list[BatchSpans] = [
            batch_spans(buffer, array, start, stop, count)
            for start, stop, count in zip(
                starts.tolist(), stops.tolist(), counts[chosen].tolist(), strict=True
            )
        ]
        rows = _Rows()
        rows.buffer, rows.array, rows.is_batch = buffer, array, True
        rows.entry = np.repeat(chosen, counts[chosen])
        rows.count_of_entry = counts[rows.entry]
        rows.batch_index = _count_up(counts[chosen])
        metadata = np.concatenate([each.metadata for each in spans])
        rows.payload_start = np.concatenate([each.payload for each in spans])
        rows.payload_end = np.concatenate([each.end for each in spans])
        rows.singles = parse_fields(array, metadata, rows.payload_start, self._single_fields)
        return rows

    def _plain_entries(
        self, buffer: bytes, array: Bytes, fields: Fields, payload: Ints, ends: Ints, chosen: Ints
    ) -> _Rows:
        kinds = fields.numbers(_COMPRESSION)[chosen]
        starts, stops = payload[chosen], ends[chosen]
        if kinds.any():
            buffer, array, starts, stops = self._plain(buffer, fields, kinds, starts, stops, chosen)
        rows = _Rows()
        rows.buffer, rows.array, rows.is_batch, rows.singles = buffer, array, False, None
        rows.entry = chosen
        rows.count_of_entry = np.ones(len(chosen), np.int64)
        rows.batch_index = np.full(len(chosen), -1, np.int64)
        rows.payload_start, rows.payload_end = starts, stops
        return rows

    def _plain(
        self, buffer: bytes, fields: Fields, kinds: Ints, starts: Ints, stops: Ints, chosen: Ints
    ) -> tuple[bytes, Bytes, Ints, Ints]:
        """The payloads of these entries in a buffer of their own, decompressed."""
        view = memoryview(buffer)
        sizes = fields.numbers(_PLAIN_SIZE)[chosen].tolist()
        parts = [
            decompress(kind, view[start:stop], size, self._topic)
            for kind, start, stop, size in zip(
                kinds.tolist(), starts.tolist(), stops.tolist(), sizes, strict=True
            )
        ]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        ends = np.cumsum(lengths)
        plain = b"".join((*parts, PADDING))
        return plain, np.frombuffer(plain, np.uint8), ends - lengths, ends

    # ------------------------------------------------------------ columns

    def _record_batch(
        self, entries: EntryColumns, entry_array: Bytes, fields: Fields, rows: _Rows
    ) -> pa.RecordBatch:
        # Its fields are of entries, those of `rows.singles` of messages.
        build = _Build(self._topic, self._base, entries, entry_array, fields, rows)
        columns = [getattr(build, name)() for name in self._columns]
        if not columns:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows.entry), pa.struct([])))
        else:
            typed = [column.cast(kind) for column, kind in zip(columns, self.schema.types, strict=True)]
            batch = pa.RecordBatch.from_arrays(typed, schema=self.schema)
        if rows.singles is not None and rows.singles.has(_S_COMPACTED):
            kept = rows.singles.numbers(_S_COMPACTED) == 0
            batch = batch.filter(pa.array(kept))
        return batch


class _Build:
    """Builds columns by their names."""

    def __init__(
        self,
        topic: TopicName,
        base: str,
        entries: EntryColumns,
        entry_array: Bytes,
        fields: Fields,
        rows: _Rows,
    ) -> None:
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
        if singles is not None and singles.has(_S_NULL_VALUE):
            return singles.flags(_S_NULL_VALUE)
        return self._fields.flags(_NULL_VALUE)[self._rows.entry]

    def value(self) -> pa.Array:
        rows = self._rows
        values = arrays.slices(rows.buffer, rows.payload_start, rows.payload_end)
        return arrays.with_nulls(values, self._nulls())

    def is_null_value(self) -> pa.Array:
        return pa.array(self._nulls())

    def _bytes_of(self, field: int, single_field: int) -> tuple[pa.Array, Bools]:
        """A field that messages of batches have themselves, and others in their entry's metadata."""
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
        return present & ~self._flag_of(_NULL_KEY, _S_NULL_KEY)

    def key(self) -> pa.Array:
        keys, present = self._bytes_of(_KEY, _S_KEY)
        present = self._has_key(present)
        is_base64 = self._flag_of(_KEY_IS_BASE64, _S_KEY_IS_BASE64) & present
        if is_base64.any():
            keys = arrays.decode_base64(keys, is_base64)
        return arrays.with_nulls(keys, ~present)

    def key_is_string(self) -> pa.Array:
        _, present = self._bytes_of(_KEY, _S_KEY)
        is_base64 = self._flag_of(_KEY_IS_BASE64, _S_KEY_IS_BASE64)
        return pa.array(~is_base64, mask=~self._has_key(present))

    def ordering_key(self) -> pa.Array:
        keys, present = self._bytes_of(_ORDERING_KEY, _S_ORDERING_KEY)
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

    def entry_index(self) -> pa.Array:
        rows = self._rows
        last = self._of_entries(np.array(self._entries.last_indexes, np.int64))
        index = last - rows.count_of_entry + 1 + np.maximum(rows.batch_index, 0)
        unknown = last < 0
        return pa.array(index, mask=unknown) if unknown.any() else pa.array(index)

    def publish_time(self) -> pa.Array:
        return arrays.timestamps(self._of_entries(self._fields.numbers(_PUBLISH_TIME)), None)

    def event_time(self) -> pa.Array:
        singles = self._rows.singles
        if singles is not None:
            times = singles.numbers(_S_EVENT_TIME)
        else:
            times = self._of_entries(self._fields.numbers(_EVENT_TIME))
        return arrays.timestamps(times, times == 0)

    def properties(self) -> pa.Array:
        rows = self._rows
        if rows.singles is not None:
            return arrays.string_maps(rows.array, rows.singles.spans(_S_PROPERTIES), self._count)
        maps = arrays.string_maps(self._entry_array, self._fields.spans(_PROPERTIES), len(self._entries))
        return maps.take(pa.array(rows.entry))

    def _of_entry_text(self, field: int, kind: pa.DataType) -> pa.Array:
        starts, ends, present = self._fields.last_spans(field)
        texts = arrays.with_nulls(arrays.slices(self._entry_array, starts, ends), ~present)
        return texts.take(pa.array(self._rows.entry)).cast(kind)

    def producer_name(self) -> pa.Array:
        return self._of_entry_text(_PRODUCER_NAME, pa.string())

    def replicated_from(self) -> pa.Array:
        return self._of_entry_text(_REPLICATED_FROM, pa.string())

    def schema_version(self) -> pa.Array:
        return self._of_entry_text(_SCHEMA_VERSION, pa.binary())

    def sequence_id(self) -> pa.Array:
        of_entry = self._of_entries(self._fields.numbers(_SEQUENCE_ID))
        singles = self._rows.singles
        if singles is None:
            return pa.array(of_entry)
        own = singles.present(_S_SEQUENCE_ID)
        # Without numbers of their own, messages of a batch number on from its first.
        numbered = of_entry + self._rows.batch_index
        return pa.array(np.where(own, singles.numbers(_S_SEQUENCE_ID), numbered))


def _count_up(counts: Ints) -> Ints:
    """0, 1, 2 ... for each count, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)
    return numbers


def _runs(is_batch: Bools, is_marker: Bools) -> Iterator[tuple[int, int]]:
    """Stretches of entries of one kind, without the markers."""
    kinds = np.where(is_marker, 2, is_batch.astype(np.int64))
    changes = np.flatnonzero(np.diff(kinds)) + 1
    edges = [0, *changes.tolist(), len(kinds)]
    for first, stop in pairwise(edges):
        if kinds[first] != 2:
            yield first, stop
