"""Turns rows of the files of history into the columns of a topic's table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow import arrays
from magnetar.arrow.fields import PADDING, Ints
from magnetar.arrow.row_filter import RowFilter
from magnetar.arrow.values import Values
from magnetar.base.names import TopicName

_ROWS_AT_ONCE: Final = 32_768
"""Most rows of one record batch, which Spark holds in memory."""

NEEDED: Final = ("entry_id", "is_null_value", "is_compacted_out", "marker_type")
"""Columns that are read always, to find the rows that are messages."""

_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "value": ("payload",),
    "message_id": ("ledger_id", "batch_index"),
    "headers": ("properties",),
    "topic": (),
    "partition": (),
    "redelivery_count": (),
    "encryption": (),
    "is_null_value": (),
}
"""By column of the table: the columns of a file that it is made of. Other columns have the same name."""


class SegmentColumns:
    """Builds the requested columns."""

    def __init__(
        self, topic: TopicName, columns: tuple[str, ...], values: Values | None, rows: RowFilter | None
    ) -> None:
        self._topic = topic
        self._columns = columns
        self._values = values
        self._rows = rows
        self.schema = arrays.arrow_schema(columns, None if values is None else values.type)

    @property
    def rows(self) -> RowFilter:
        """The conditions for rows."""
        return self._rows or RowFilter()

    def names(self, there: Collection[str]) -> list[str]:
        """The columns to read from a file that has the columns `there`."""
        wanted = set(self._columns)
        if self._rows is not None:
            wanted |= self._rows.columns
        if self._values is not None and "value" in wanted:
            wanted |= self._values.columns
        found = {*NEEDED, *(source for name in wanted for source in _SOURCES.get(name, (name,)))}
        return [name for name in there if name in found]

    def batches(self, table: pa.Table, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The messages of the entries `first <= e < stop` among the rows of a file."""
        kept = pc.and_(pc.is_null(table["marker_type"]), pc.invert(table["is_compacted_out"]))
        kept = pc.and_(
            kept, pc.and_(pc.greater_equal(table["entry_id"], first), pc.less(table["entry_id"], stop))
        )
        if self._rows is not None:
            kept = pc.and_(kept, self._wanted(table))
        if not pc.all(kept).as_py():
            table = table.filter(kept)
        for batch in table.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE):
            if batch.num_rows:
                yield self._batch(batch)

    def _wanted(self, table: pa.Table) -> object:
        assert self._rows is not None
        wanted = pa.array(np.ones(table.num_rows, np.bool_))
        if self._rows.keys is not None:
            keys = pa.array(sorted(self._rows.keys), pa.binary())
            wanted = pc.and_(wanted, pc.is_in(table["key"], value_set=keys))
        for limit, compare in (
            (self._rows.published_from_ms, pc.greater_equal),
            (self._rows.published_until_ms, pc.less_equal),
        ):
            if limit is not None:
                moment = pa.scalar(limit * 1000, pa.int64())
                times = pc.fill_null(table["publish_time"].cast(pa.int64()), 0)
                wanted = pc.and_(wanted, compare(times, moment))
        return wanted

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows.num_rows, pa.struct([])))
        columns = []
        for name, kind in zip(self._columns, self.schema.types, strict=True):
            made = _MADE.get(name)
            built = rows[name] if made is None else made(self, rows)
            columns.append(built if built.type == kind else built.cast(kind))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _payload(self, rows: pa.RecordBatch) -> pa.Array:
        payload = rows["payload"]
        present = _present(rows)
        if pc.all(present).as_py():
            return payload
        return pc.if_else(present, payload, pa.scalar(None, pa.binary()))

    def _value(self, rows: pa.RecordBatch) -> pa.Array:
        if self._values is None:
            return self._payload(rows)
        payload = rows["payload"]
        present = _present(rows)
        _, offsets, data = payload.buffers()
        ends = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + len(payload) + 1]
        places: Ints = ends.astype(np.int64)
        # The decoders of values may read a few bytes behind the last value.
        buffer = np.frombuffer(b"".join((data or b"", PADDING)), np.uint8)
        mask = present.to_numpy(zero_copy_only=False)

        def column(name: str) -> pa.Array:
            made = _MADE.get(name)
            return rows[name] if made is None else made(self, rows)

        return self._values.decode(buffer, places[:-1], places[1:], mask, column)

    def _message_id(self, rows: pa.RecordBatch) -> pa.Array:
        text = pa.string()
        parts = (
            rows["ledger_id"].cast(text),
            rows["entry_id"].cast(text),
            pa.repeat(str(self._topic.partition), rows.num_rows),
            rows["batch_index"].cast(text),
        )
        return pc.binary_join_element_wise(*parts, ":")

    def _base(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.repeat(str(self._topic.base), rows.num_rows)

    def _partition(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(self._topic.partition, pa.int32()), rows.num_rows)

    def _redelivery_count(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)

    def _encryption(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.nulls(rows.num_rows, self.schema.field("encryption").type)

    def _headers(self, rows: pa.RecordBatch) -> pa.Array:
        kind = self.schema.field("headers").type
        pairs = rows["properties"]
        items = pa.StructArray.from_arrays([pairs.keys, pairs.items], fields=list(kind.value_type))
        # The offsets of a slice point into the keys and items of the whole array.
        return pa.ListArray.from_arrays(pairs.offsets, items, type=kind)


def _present(rows: pa.RecordBatch) -> pa.Array:
    """Where a message has a payload."""
    return pc.and_(pc.is_valid(rows["payload"]), pc.invert(rows["is_null_value"]))


_MADE: Final[dict[str, Callable[[SegmentColumns, pa.RecordBatch], pa.Array]]] = {
    "value": SegmentColumns._value,
    "payload": SegmentColumns._payload,
    "message_id": SegmentColumns._message_id,
    "topic": SegmentColumns._base,
    "partition": SegmentColumns._partition,
    "redelivery_count": SegmentColumns._redelivery_count,
    "encryption": SegmentColumns._encryption,
    "headers": SegmentColumns._headers,
}
"""Columns that are computed from columns of the file."""
