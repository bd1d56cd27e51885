"""The columns of a segment. Names, ids and types are a stable format for all readers of the files.

Ids are those of the Parquet schema (`field_id`) and never change their meaning; the id of a dropped column is
not used again. Times are in microseconds, because Iceberg tables support no other unit; Pulsar's are in
milliseconds. docs/internals/history-format.md describes each column.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column of every segment."""

    id: int
    name: str
    type: pa.DataType
    required: bool = False
    """Whether the column is never null."""


def _numbered(kind: pa.DataType, first_id: int) -> pa.DataType:
    """`kind` with ids for its nested fields."""
    if pa.types.is_map(kind):
        return pa.map_(
            pa.field("key", kind.key_type, nullable=False, metadata=field_id(first_id)),
            pa.field("value", kind.item_type, nullable=False, metadata=field_id(first_id + 1)),
        )
    return kind


def field_id(number: int) -> dict[bytes, bytes]:
    """Metadata of an Arrow field that becomes the id of a Parquet column."""
    return {b"PARQUET:field_id": str(number).encode()}


PROPERTIES_ID: Final = 14

COLUMNS: Final = (
    Column(1, "ledger_id", pa.int64(), required=True),
    Column(2, "entry_id", pa.int64(), required=True),
    Column(3, "batch_index", pa.int32(), required=True),
    Column(4, "batch_size", pa.int32(), required=True),
    Column(5, "entry_index", pa.int64(), required=True),
    Column(6, "broker_time", _TIME, required=True),
    Column(7, "publish_time", _TIME),
    Column(8, "event_time", _TIME),
    Column(9, "key", pa.binary()),
    Column(10, "key_is_string", pa.bool_()),
    Column(11, "ordering_key", pa.binary()),
    Column(12, "producer_name", pa.string()),
    Column(13, "sequence_id", pa.int64()),
    Column(PROPERTIES_ID, "properties", _numbered(pa.map_(pa.string(), pa.string()), 50)),
    Column(15, "schema_version", pa.binary()),
    Column(16, "replicated_from", pa.string()),
    Column(17, "is_null_value", pa.bool_(), required=True),
    Column(18, "is_compacted_out", pa.bool_(), required=True),
    Column(19, "deliver_at", _TIME),
    Column(20, "marker_type", pa.int32()),
    Column(21, "txn_most", pa.int64()),
    Column(22, "txn_least", pa.int64()),
    Column(23, "chunk_uuid", pa.string()),
    Column(24, "chunk_id", pa.int32()),
    Column(25, "chunk_count", pa.int32()),
    Column(26, "chunks_total_bytes", pa.int32()),
    Column(27, "compression", pa.int32(), required=True),
    Column(28, "payload", pa.binary()),
    Column(29, "entry_fields", pa.int64(), required=True),
    Column(30, "message_fields", pa.int32(), required=True),
    Column(31, "entry_checksum", pa.int32()),
    Column(32, "entry_metadata", pa.binary()),
    Column(33, "message_metadata", pa.binary()),
    Column(34, "raw_entry", pa.binary()),
)

VALUE_ID: Final = 40
"""Id of the column `value`, which segments of topics with a schema have in addition."""
VALUE_FIELDS_ID: Final = 1000
"""First id of the fields in `value`."""

HAS_CHECKSUM: Final = 1
"""Bit 0 of `entry_fields`: the entry starts with a checksum. Bit n, n > 0: its metadata has field n."""

TIME_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999, Unix ms. Later times are null in their column; the stored metadata keeps them."""


def arrow_field(column: Column) -> pa.Field:
    """The Arrow field of the column, with its Parquet id."""
    return pa.field(column.name, column.type, nullable=not column.required, metadata=field_id(column.id))


SCHEMA: Final = pa.schema([arrow_field(column) for column in COLUMNS])
"""Columns of every segment, without `value`."""

REBUILD_COLUMNS: Final = tuple(column.name for column in COLUMNS if column.name != "ledger_id")
"""Names of the columns from which entries are rebuilt."""
