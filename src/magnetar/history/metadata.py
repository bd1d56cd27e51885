"""Rebuilds metadata from columns in the form that all clients write: fields in the order of their numbers,
each number in its shortest form.

The bits of `entry_fields` and `message_fields` name the fields that are present; the columns hold their
values. Metadata of another form is detected by comparison when a segment is written, and stored unchanged
(`entry_metadata`, `message_metadata`).

Fields that both an entry and its messages have, such as the key, have the value of its first message. The
highest sequence id is that of its last message; the uncompressed size is the sum.

Source: Pulsar binary protocol; field order of protobuf, LightProto and gogo/protobuf.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow import metadata_fields as number
from magnetar.arrow.fields import Bools, Ints
from magnetar.history.pieces import Pieces, key_values
from magnetar.history.same import Same

_CHUNK_COLUMNS = {
    number.CHUNK_COUNT: "chunk_count",
    number.CHUNKS_TOTAL_BYTES: "chunks_total_bytes",
    number.CHUNK_ID: "chunk_id",
}


def ints(values: pa.Array) -> Ints:
    """A column of numbers or times; 0 for null."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    numbers: Ints = values.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def milliseconds(times: pa.Array) -> Ints:
    """A column of times as Unix milliseconds; 0 for null."""
    return ints(times) // 1000


def bools(values: pa.Array) -> Bools:
    """A column of booleans; False for null."""
    if values.null_count:
        values = pc.fill_null(values, False)
    flags: Bools = values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def nulls(values: pa.Array) -> Bools:
    """Where a column is null."""
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    missing: Bools = values.is_null().to_numpy(zero_copy_only=False)
    return missing


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys in the form of the metadata."""

    text: pa.Array
    """Binary array of the field's values: base64 when the key is bytes; empty for null."""
    is_base64: Bools
    is_null: Bools


def stored_keys(keys: pa.Array, key_is_string: pa.Array) -> Keys:
    """The keys of messages in the form of the metadata, from the columns."""
    is_null = nulls(keys)
    is_base64 = ~bools(key_is_string) & ~is_null
    if keys.null_count:
        keys = pc.fill_null(keys, b"")
    if is_base64.any():
        texts = keys.to_pylist()
        for row in np.flatnonzero(is_base64).tolist():
            texts[row] = base64.b64encode(texts[row])
        keys = pa.array(texts, pa.binary())
    return Keys(keys, is_base64, is_null)


class Rows:
    """Columns of some rows by name, with values that several steps share."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int, same: Same | None = None) -> None:
        """`same`: columns whose rows all have one value; `column` makes them when needed."""
        self._columns = dict(columns)
        self._same = same or {}
        self.count = count

    @classmethod
    def of_table(cls, table: pa.Table | pa.RecordBatch, same: Same | None = None) -> Rows:
        """All columns of a table, and those of `same`."""
        columns = {}
        for name, column in zip(table.schema.names, table.columns, strict=True):
            if isinstance(column, pa.ChunkedArray):
                chunks = column.chunks
                column = (
                    chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.array([], column.type)])
                )
            columns[name] = column
        return cls(columns, table.num_rows, same)

    def column(self, name: str) -> pa.Array:
        """A column as one contiguous array."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = pa.repeat(self._same[name], self.count)
        return found

    def take(self, rows: Ints) -> Rows:
        """The given rows."""
        return TakenRows(self, rows)


class TakenRows(Rows):
    """A selection of rows; each column is selected when it is first used."""

    def __init__(self, rows: Rows, chosen: Ints) -> None:
        super().__init__({}, len(chosen), rows._same)
        self._rows = rows
        self._chosen = pa.array(chosen)

    def column(self, name: str) -> pa.Array:
        if name not in self._columns and name not in self._same:
            self._columns[name] = self._rows.column(name).take(self._chosen)
        return super().column(name)


def _has(bits: npt.NDArray[np.int64], field: int) -> Bools:
    has: Bools = bits & (1 << field) != 0
    return has


def message_pieces(rows: Rows, sizes: Ints) -> Pieces:
    """SingleMessageMetadata of messages in batches; `sizes`: bytes of their payloads."""
    bits = ints(rows.column("message_fields"))
    used = int(np.bitwise_or.reduce(bits)) if len(bits) else 0
    pieces = Pieces(rows.count)

    def has(field: int) -> Bools | None:
        return _has(bits, field) if used >> field & 1 else None

    if (present := has(number.S_PROPERTIES)) is not None:
        pieces.plain(_properties(number.S_PROPERTIES, rows, present))
    keys = None
    if used & (1 << number.S_KEY | 1 << number.S_KEY_IS_BASE64 | 1 << number.S_NULL_KEY):
        keys = stored_keys(rows.column("key"), rows.column("key_is_string"))
        if (present := has(number.S_KEY)) is not None:
            pieces.data(number.S_KEY, keys.text, present)
    if (present := has(number.S_PAYLOAD_SIZE)) is not None:
        pieces.number(number.S_PAYLOAD_SIZE, sizes, present)
    if (present := has(number.S_COMPACTED)) is not None:
        pieces.flag(number.S_COMPACTED, bools(rows.column("is_compacted_out")), present)
    if (present := has(number.S_EVENT_TIME)) is not None:
        pieces.number(number.S_EVENT_TIME, milliseconds(rows.column("event_time")), present)
    if keys is not None and (present := has(number.S_KEY_IS_BASE64)) is not None:
        pieces.flag(number.S_KEY_IS_BASE64, keys.is_base64, present)
    if (present := has(number.S_ORDERING_KEY)) is not None:
        pieces.data(number.S_ORDERING_KEY, rows.column("ordering_key"), present)
    if (present := has(number.S_SEQUENCE_ID)) is not None:
        pieces.number(number.S_SEQUENCE_ID, ints(rows.column("sequence_id")), present)
    if (present := has(number.S_NULL_VALUE)) is not None:
        pieces.flag(number.S_NULL_VALUE, bools(rows.column("is_null_value")), present)
    if keys is not None and (present := has(number.S_NULL_KEY)) is not None:
        pieces.flag(number.S_NULL_KEY, keys.is_null, present)
    return pieces


def _properties(field: int, rows: Rows, present: Bools) -> pa.Array:
    texts = key_values(field, rows.column("properties"))
    return texts if present.all() else pc.if_else(pa.array(present), texts, pa.scalar(b"", pa.binary()))


def entry_metadata(rows: Rows, last_sequence_ids: Ints, plain_bytes: Ints) -> pa.Array:
    """MessageMetadata of entries, as a binary array.

    `rows`: the first row of each entry. `last_sequence_ids`: sequence id of the last row of each entry.
    `plain_bytes`: bytes of each payload before compression.
    """
    bits = ints(rows.column("entry_fields"))
    used = int(np.bitwise_or.reduce(bits)) if len(bits) else 0
    pieces = Pieces(rows.count)
    keys = stored_keys(rows.column("key"), rows.column("key_is_string"))

    def has(field: int) -> Bools:
        return _has(bits, field)

    def text(field: int, name: str) -> None:
        if used >> field & 1:
            pieces.data(field, rows.column(name).cast(pa.binary()), has(field))

    def whole(field: int, values: Ints) -> None:
        if used >> field & 1:
            pieces.number(field, values, has(field))

    text(number.PRODUCER_NAME, "producer_name")
    whole(number.SEQUENCE_ID, ints(rows.column("sequence_id")))
    whole(number.PUBLISH_TIME, milliseconds(rows.column("publish_time")))
    if used >> number.PROPERTIES & 1:
        pieces.plain(_properties(number.PROPERTIES, rows, has(number.PROPERTIES)))
    text(number.REPLICATED_FROM, "replicated_from")
    if used >> number.KEY & 1:
        pieces.data(number.KEY, keys.text, has(number.KEY))
    whole(number.COMPRESSION, ints(rows.column("compression")))
    whole(number.PLAIN_SIZE, plain_bytes)
    whole(number.BATCH_COUNT, ints(rows.column("batch_size")))
    whole(number.EVENT_TIME, milliseconds(rows.column("event_time")))
    text(number.SCHEMA_VERSION, "schema_version")
    whole(number.KEY_IS_BASE64, keys.is_base64.astype(np.int64))
    text(number.ORDERING_KEY, "ordering_key")
    whole(number.DELIVER_AT, milliseconds(rows.column("deliver_at")))
    whole(number.MARKER, ints(rows.column("marker_type")))
    whole(number.TXN_LEAST, ints(rows.column("txn_least")))
    whole(number.TXN_MOST, ints(rows.column("txn_most")))
    whole(number.HIGHEST_SEQUENCE_ID, last_sequence_ids)
    whole(number.NULL_VALUE, bools(rows.column("is_null_value")).astype(np.int64))
    text(number.UUID, "chunk_uuid")
    for field, name in _CHUNK_COLUMNS.items():
        whole(field, ints(rows.column(name)))
    whole(number.NULL_KEY, keys.is_null.astype(np.int64))
    return pieces.join()
