"""Builds the columns of a segment, and checks that entries can be rebuilt from them.

Rows of batches and rows of single-message entries are built separately, each kind by array operations over
all of them, and then put in the order of the log. The reader's code rebuilds metadata from the columns, and
the result is compared with the original. Where it differs, the original bytes are stored beside the columns,
if clients can read them at all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from magnetar.arrow import metadata_fields as number
from magnetar.arrow.arrays import decode_base64, slices, string_maps, with_nulls
from magnetar.arrow.fields import Bools, Bytes, Fields, Ints, big_endian_u32
from magnetar.client.errors import PayloadError
from magnetar.history.columns import COLUMNS, HAS_CHECKSUM, SCHEMA, TIME_MAX_MS
from magnetar.history.metadata import Rows, entry_metadata, message_pieces
from magnetar.history.opening import SINGLE_FIELDS, OpenedBatches, OpenedEntries, open_entries
from magnetar.history.vectors import ENTRY_FIELDS, EntryVector
from magnetar.wire import pulsar_pb2 as pb

_TIME = pa.timestamp("us", tz="UTC")
_INT32_MAX = (1 << 31) - 1
_SPAN_FIELDS = frozenset(
    (
        number.PRODUCER_NAME,
        number.PROPERTIES,
        number.REPLICATED_FROM,
        number.KEY,
        number.SCHEMA_VERSION,
        number.ORDERING_KEY,
        number.UUID,
    )
)
_SINGLE_SPAN_FIELDS = frozenset((number.S_PROPERTIES, number.S_KEY, number.S_ORDERING_KEY))


class _UnreadableError(Exception):
    """Entries have metadata that no client can read; `rows` are their rows in the vector."""

    def __init__(self, rows: Ints) -> None:
        super().__init__("entries with metadata that no client can read")
        self.rows = rows


def build_rows(vector: EntryVector) -> pa.RecordBatch:
    """All rows of these entries, in order, with the columns of `SCHEMA`."""
    while True:
        try:
            return _build(open_entries(vector))
        except _UnreadableError as error:
            vector.is_readable[error.rows] = False


def _build(opened: OpenedEntries) -> pa.RecordBatch:
    entries = _EntryColumns(opened)
    parts: list[list[pa.Array]] = []
    places: list[Ints] = []
    if opened.batches is not None:
        parts.append(_batch_rows(opened, opened.batches, entries))
        places.append(opened.batches.entry)
    singles = np.flatnonzero(opened.is_single)
    if len(singles):
        parts.append(_single_rows(opened, singles, entries))
        places.append(singles)
    batches = [pa.RecordBatch.from_arrays(part, schema=SCHEMA) for part in parts]
    if len(batches) == 1:
        return batches[0]
    order = np.argsort(np.concatenate(places), kind="stable")
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined.take(pa.array(order))


class _EntryColumns:
    """Fields of the metadata of entries, as arrays with one element per entry."""

    def __init__(self, opened: OpenedEntries) -> None:
        vector = opened.vector
        fields = vector.fields
        count = len(vector)
        self._array, self._buffer = vector.array, vector.buffer
        self._fields = fields
        self.bits = _presence(fields, ENTRY_FIELDS, _SPAN_FIELDS, count) * vector.is_readable
        self.bits |= np.where(vector.has_checksum, HAS_CHECKSUM, 0)
        compression = fields.numbers(number.COMPRESSION)
        plain = ~vector.has_checksum | ((compression != 0) & ~opened.is_raw & ~opened.is_piece)
        # Entries that are compressed again get a new checksum then.
        checksums = big_endian_u32(vector.array, vector.starts + 2).astype(np.uint32).view(np.int32)
        self.columns: dict[str, pa.Array] = {
            "ledger_id": pa.array(vector.ledger_ids),
            "entry_id": pa.array(vector.entry_ids),
            "broker_time": times(vector.broker_times_ms, None),
            "publish_time": times(fields.numbers(number.PUBLISH_TIME), fields.present(number.PUBLISH_TIME)),
            "deliver_at": times(fields.numbers(number.DELIVER_AT), fields.present(number.DELIVER_AT)),
            "producer_name": self.text(number.PRODUCER_NAME),
            "replicated_from": self.text(number.REPLICATED_FROM),
            "schema_version": self.data(number.SCHEMA_VERSION),
            "chunk_uuid": self.text(number.UUID),
            "marker_type": self.small(number.MARKER),
            "chunk_id": self.small(number.CHUNK_ID),
            "chunk_count": self.small(number.CHUNK_COUNT),
            "chunks_total_bytes": self.small(number.CHUNKS_TOTAL_BYTES),
            "txn_most": self.large(number.TXN_MOST),
            "txn_least": self.large(number.TXN_LEAST),
            "compression": pa.array(np.clip(compression, 0, _INT32_MAX).astype(np.int32)),
            "entry_fields": pa.array(self.bits),
            "entry_checksum": pa.array(checksums, mask=plain | opened.is_raw),
            "batch_size": pa.array(vector.counts.astype(np.int32)),
        }

    def data(self, field: int) -> pa.Array:
        """A field of bytes; null where it is missing."""
        if not self._fields.has(field):
            return pa.nulls(len(self.bits), pa.binary())
        starts, ends, present = self._fields.last_spans(field)
        return with_nulls(slices(self._buffer, starts, ends), ~present)

    def text(self, field: int) -> pa.Array:
        """A field of text; null where it is missing."""
        return as_text(self.data(field))

    def large(self, field: int) -> pa.Array:
        """A 64-bit number; null where it is missing."""
        return pa.array(self._fields.numbers(field), mask=~self._fields.present(field))

    def small(self, field: int) -> pa.Array:
        """A 32-bit number; null where it is missing or out of range."""
        values = self._fields.numbers(field)
        fits = (values >= -_INT32_MAX - 1) & (values <= _INT32_MAX)
        return pa.array(values.astype(np.int32), mask=~(self._fields.present(field) & fits))


def _repeated(column: pa.Array, of_entry: pa.Array) -> pa.Array:
    """Repeats the value of each entry for each of its messages. Most columns are null or have one value."""
    if column.null_count == len(column):
        return pa.nulls(len(of_entry), column.type)
    if pa.types.is_string(column.type) and column.null_count == 0 and pc.count_distinct(column).as_py() == 1:
        return pa.repeat(column[0], len(of_entry))
    return column.take(of_entry)


def _batch_rows(opened: OpenedEntries, batches: OpenedBatches, entries: _EntryColumns) -> list[pa.Array]:
    vector, singles, entry = opened.vector, batches.singles, batches.entry
    count = len(entry)
    of_entry = pa.array(entry)
    is_first = batches.batch_index == 0
    own_id = singles.present(number.S_SEQUENCE_ID)
    # Messages of a batch without sequence ids are numbered from the first one.
    sequence_ids = vector.fields.numbers(number.SEQUENCE_ID)[entry] + batches.batch_index
    if own_id.any():
        sequence_ids = np.where(own_id, singles.numbers(number.S_SEQUENCE_ID), sequence_ids)
    has_key, key, key_is_string = _keys(
        singles, batches.buffer, number.S_KEY, number.S_KEY_IS_BASE64, number.S_NULL_KEY
    )
    columns = {
        name: _repeated(column, of_entry)
        for name, column in entries.columns.items()
        if name != "entry_checksum"
    }
    columns |= {
        "batch_index": pa.array(batches.batch_index.astype(np.int32)),
        "entry_index": pa.array(vector.base_indexes[entry] + batches.batch_index),
        "event_time": _event_times(singles, number.S_EVENT_TIME),
        "key": with_nulls(key, ~has_key),
        "key_is_string": key_is_string,
        "ordering_key": _data(singles, batches.buffer, number.S_ORDERING_KEY, count),
        "sequence_id": pa.array(sequence_ids),
        "properties": _properties(batches.array, singles, number.S_PROPERTIES, count),
        "is_null_value": pa.array(singles.flags(number.S_NULL_VALUE)),
        "is_compacted_out": pa.array(singles.flags(number.S_COMPACTED)),
        "payload": slices(batches.buffer, batches.payload_start, batches.payload_end),
        "message_fields": pa.array(
            _presence(singles, SINGLE_FIELDS, _SINGLE_SPAN_FIELDS, count).astype(np.int32)
        ),
        "entry_checksum": with_nulls(entries.columns["entry_checksum"].take(of_entry), ~is_first),
        "raw_entry": pa.nulls(count, pa.binary()),
    }
    rows = Rows(columns, count)
    stored = slices(batches.buffer, batches.metadata_start, batches.payload_start)
    rebuilt = message_pieces(rows, batches.payload_end - batches.payload_start).join()
    columns["message_metadata"] = _where_different(stored, rebuilt, entry, pb.SingleMessageMetadata)
    firsts = np.flatnonzero(is_first)
    chosen = entry[firsts]
    lasts = np.append(firsts[1:], count) - 1
    rebuilt = entry_metadata(
        rows.take(firsts), sequence_ids[lasts], opened.plain_end[chosen] - opened.plain_start[chosen]
    )
    stored = slices(vector.buffer, vector.metadata[chosen], vector.payload[chosen])
    columns["entry_metadata"] = _spread(
        _where_different(stored, rebuilt, chosen, pb.MessageMetadata), firsts, count
    )
    return [columns[column.name] for column in COLUMNS]


def _single_rows(opened: OpenedEntries, chosen: Ints, entries: _EntryColumns) -> list[pa.Array]:
    """Rows of entries that are one row each: single messages, markers, pieces, and unopened entries."""
    vector, fields = opened.vector, opened.vector.fields
    count = len(chosen)
    is_all = count == len(vector)
    places = pa.array(chosen)

    def of(column: pa.Array) -> pa.Array:
        return column if is_all else column.take(places)

    has_key, key, key_is_string = _keys(
        fields, vector.buffer, number.KEY, number.KEY_IS_BASE64, number.NULL_KEY
    )
    is_raw = opened.is_raw[chosen]
    payload = slices(opened.buffer, opened.plain_start[chosen], opened.plain_end[chosen])
    sequence_ids = fields.numbers(number.SEQUENCE_ID)
    columns = {name: of(column) for name, column in entries.columns.items()}
    columns |= {
        "batch_index": pa.repeat(pa.scalar(-1, pa.int32()), count),
        "entry_index": of(pa.array(vector.base_indexes)),
        "event_time": of(_event_times(fields, number.EVENT_TIME)),
        "key": of(with_nulls(key, ~has_key)),
        "key_is_string": of(key_is_string),
        "ordering_key": of(entries.data(number.ORDERING_KEY)),
        "sequence_id": of(pa.array(sequence_ids, mask=~fields.present(number.SEQUENCE_ID))),
        "properties": of(_properties(vector.array, fields, number.PROPERTIES, len(vector))),
        "is_null_value": of(pa.array(fields.flags(number.NULL_VALUE))),
        "is_compacted_out": pa.array(np.zeros(count, np.bool_)),
        "payload": with_nulls(payload, is_raw),
        "message_fields": pa.repeat(pa.scalar(0, pa.int32()), count),
        "message_metadata": pa.nulls(count, pa.binary()),
        "raw_entry": _raw(opened, chosen, is_raw),
    }
    rows = Rows(columns, count)
    plain_bytes = opened.plain_end[chosen] - opened.plain_start[chosen]
    rebuilt = entry_metadata(rows, sequence_ids[chosen], plain_bytes)
    stored = slices(vector.buffer, vector.metadata[chosen], vector.payload[chosen])
    if is_raw.any():
        rebuilt = pc.if_else(pa.array(is_raw), stored, rebuilt)
    columns["entry_metadata"] = _where_different(stored, rebuilt, chosen, pb.MessageMetadata)
    return [columns[column.name] for column in COLUMNS]


def _raw(opened: OpenedEntries, chosen: Ints, is_raw: Bools) -> pa.Array:
    if not is_raw.any():
        return pa.nulls(len(chosen), pa.binary())
    entries = opened.vector.entries
    return pa.array(
        [entries[row] if raw else None for row, raw in zip(chosen.tolist(), is_raw.tolist(), strict=True)],
        pa.binary(),
    )


def _presence(fields: Fields, numbers: frozenset[int], spans: frozenset[int], count: int) -> Ints:
    """For each message or entry a number whose bit n is set when field n is present."""
    bits: Ints = np.zeros(count, np.int64)
    for field in numbers:
        if fields.has(field):
            present = fields.last_spans(field)[2] if field in spans else fields.present(field)
            bits |= present.astype(np.int64) << field
    return bits


def _keys(
    fields: Fields, buffer: bytes, key: int, is_base64: int, is_null: int
) -> tuple[Bools, pa.Array, pa.Array]:
    """Which messages have a key, the keys as bytes, and whether each key was text."""
    starts, ends, present = fields.last_spans(key)
    if not present.any():
        return present, pa.nulls(len(present), pa.binary()), pa.nulls(len(present), pa.bool_())
    keys = slices(buffer, starts, ends)
    present = present & ~fields.flags(is_null)
    coded = fields.flags(is_base64) & present
    if coded.any():
        keys = decode_base64(keys, coded)
    return present, keys, pa.array(~coded, mask=~present)


def _data(fields: Fields, buffer: bytes, field: int, count: int) -> pa.Array:
    if not fields.has(field):
        return pa.nulls(count, pa.binary())
    starts, ends, present = fields.last_spans(field)
    return with_nulls(slices(buffer, starts, ends), ~present)


def _event_times(fields: Fields, field: int) -> pa.Array:
    """Event times; null where the field is missing or 0, which means "none"."""
    values = fields.numbers(field)
    return times(values, values != 0)


def times(values_ms: Ints, present: Bools | None) -> pa.Array:
    """Unix milliseconds as times; null where they are missing or outside the range of times."""
    sound = (values_ms >= 0) & (values_ms <= TIME_MAX_MS)
    if present is not None:
        sound &= present
    mask = None if sound.all() else ~sound
    return pa.array(values_ms * 1000, mask=mask).cast(_TIME)


def as_text(values: pa.Array) -> pa.Array:
    """Bytes as text; bytes that are not UTF-8 become replacement characters."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _properties(array: Bytes, fields: Fields, field: int, count: int) -> pa.Array:
    kind = SCHEMA.field("properties").type
    if not fields.has(field):
        offsets = pa.array(np.zeros(count + 1, np.int32))
        return pa.MapArray.from_arrays(
            offsets, pa.array([], pa.string()), pa.array([], pa.string()), type=kind
        )
    spans = fields.spans(field)
    try:
        maps = string_maps(array, spans, count)
    except (PayloadError, pa.ArrowInvalid):
        # A pair that cannot be read costs the vector its properties as columns; the metadata keeps them.
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), empty, empty, type=kind)
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items, type=kind)


def _where_different(
    stored: pa.Array,
    rebuilt: pa.Array,
    entry: Ints,
    kind: type[pb.MessageMetadata | pb.SingleMessageMetadata],
) -> pa.Array:
    """The stored metadata; null where it was rebuilt byte for byte. `entry`: the entry of each in its vector.

    Raises _UnreadableError for metadata that protobuf cannot read; it checks more than this room does.
    """
    different = pc.not_equal(stored, rebuilt)
    if not pc.any(different).as_py():
        return pa.nulls(len(stored), pa.binary())
    rows = np.flatnonzero(different.to_numpy(zero_copy_only=False))
    unreadable = [row for row in rows.tolist() if not _is_readable(stored[row].as_py(), kind)]
    if unreadable:
        raise _UnreadableError(entry[unreadable])
    return pc.if_else(different, stored, pa.scalar(None, pa.binary()))


def _is_readable(data: bytes, kind: type[pb.MessageMetadata | pb.SingleMessageMetadata]) -> bool:
    try:
        return kind.FromString(data).IsInitialized()
    except DecodeError:
        return False


def _spread(values: pa.Array, places: Ints, count: int) -> pa.Array:
    """An array of `count` elements with `values` at `places` and nulls elsewhere."""
    if values.null_count == len(values):
        return pa.nulls(count, pa.binary())
    index = np.full(count, -1, np.int64)
    index[places] = np.arange(len(places))
    return values.take(pa.array(index, mask=index < 0))
