"""Rows that are decoded here: the tail, which only the broker has, and files that the engine cannot read.

The engine sees a data set of Arrow. It asks for columns and gives a filter; nothing is read before, and rows
stream through in batches, so that the memory does not depend on the length of the tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from magnetar.arrow.decode import Decoder
from magnetar.arrow.placed_values import RescuedValues
from magnetar.arrow.row_filter import RowFilter
from magnetar.base.ids import Position
from magnetar.client.client import Client
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.sql.errors import RowsGoneError
from magnetar.sql.plans import PartitionPlan, ReadCounts
from magnetar.sql.topic_tables import VALUE, TopicTable
from magnetar.tables.broker_entries import entries_from_broker
from magnetar.tables.history import LastFile, read_stretch
from magnetar.tables.history_columns import SegmentColumns
from magnetar.tables.large_messages import LookBack
from magnetar.tables.schema_formats import definitions_of
from magnetar.tables.stretches import Stretch


class TopicRows:
    """The decoded rows of one reference to a topic."""

    def __init__(
        self,
        connect: Callable[[], Client],
        table: TopicTable,
        plans: Sequence[PartitionPlan],
        rows: RowFilter | None,
        counts: ReadCounts,
    ) -> None:
        """`connect`: opens a client, which is used by one thread. `rows`: a filter that the engine applies
        again."""
        self._connect = connect
        self._table = table
        self._plans = plans
        self._filter = rows
        self._counts = counts

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows with these columns of the table. Raises ClientError, SqlError."""
        schema = pa.schema([self._table.columns.field(name) for name in columns])
        with self._connect() as client:
            for plan in self._plans:
                for batch in _PartitionRows(client, self._table, plan, columns, self._filter, self._counts):
                    self._counts.decoded_rows += batch.num_rows
                    yield self._shaped(batch, schema)

    def _shaped(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """A decoded batch with the wanted columns; those of broken values are null."""
        if not len(schema):
            return batch
        value = None
        if VALUE in batch.schema.names:
            value = batch.column(VALUE)
            if _is_rescued(value.type):
                self._counts.broken_values += len(value) - value.field(1).null_count
                value = pc.struct_field(value, [0])
        made = []
        for field in schema:
            if field.name == VALUE:
                assert value is not None
                made.append(value)
            elif field.name in self._table.fields:
                assert value is not None
                made.append(pc.struct_field(value, [value.type.get_field_index(field.name)]))
            else:
                made.append(batch.column(field.name))
        typed = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(made, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(typed, schema=schema)


_RESCUED: Final = ["value", "broken"]


def _is_rescued(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [each.name for each in kind] == _RESCUED


class _PartitionRows:
    """The rows of one partition, with the columns of the decoder."""

    def __init__(
        self,
        client: Client,
        table: TopicTable,
        plan: PartitionPlan,
        columns: Sequence[str],
        rows: RowFilter | None,
        counts: ReadCounts,
    ) -> None:
        self._client = client
        self._plan = plan
        self._counts = counts
        decoded = [name for name in columns if name not in table.fields]
        if len(decoded) < len(columns) and VALUE not in decoded:
            decoded.append(VALUE)
        values = None
        if VALUE in decoded:
            format_ = table.narrowed({name.lower() for name in columns})
            values = format_.open(definitions_of(client, plan.topic))
        rescued = None if values is None else RescuedValues(values)
        self._decoder = Decoder(
            plan.topic,
            tuple(decoded),
            values=rescued,
            encrypted="skip",
            rows=rows,
            pieces_before=LookBack(client, plan.topic, strict=False),
        )
        self._columns = SegmentColumns(plan.topic, tuple(decoded), rescued, rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        last = LastFile()
        for stretch in self._plan.stretches:
            begin, stop = Position(*stretch.start), Position(*stretch.end)
            if stretch.file is not None:
                for found in read_stretch(self._plan.topic, stretch, self._decoder, self._columns, last):
                    if isinstance(found, Position):
                        begin = found
                    else:
                        yield found
            if begin < stop:
                yield from self._from_broker(Stretch(stretch.start, stretch.end, None), begin, stop)

    def _from_broker(self, stretch: Stretch, begin: Position, stop: Position) -> Iterator[pa.RecordBatch]:
        topic = self._plan.topic
        for entries in entries_from_broker(self._client, topic, begin, stop, RowsGoneError, strict=True):
            self._counts.entries += len(entries)
            self._counts.entry_bytes += entries.size_bytes
            yield from self._decoded(entries)

    def _decoded(self, entries: EntryColumns) -> Iterator[pa.RecordBatch]:
        """The rows of these entries. An entry that cannot be opened has none, as no consumer gets it."""
        try:
            yield from list(self._decoder.decode(entries))
        except PayloadError:
            if len(entries) == 1:
                self._counts.hidden_entries += 1
                return
            half = len(entries) // 2
            yield from self._decoded(entries.slice(0, half))
            yield from self._decoded(entries.slice(half, len(entries)))


class RowsDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Rows as a data set that the engine scans. Any number of scans may run at the same time."""

    def __init__(self, rows: TopicRows, schema: pa.Schema, failed: Callable[[Exception], None]) -> None:
        """`failed` gets an error of a scan as it was raised, as the engine tells only its text."""
        self._rows = rows
        self._schema = schema
        self._failed = failed

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  # Arrow's name
        **options: object,
    ) -> ds.Scanner:
        """A scan of some columns, with Arrow's contract."""
        wanted = list(self._schema.names if columns is None else columns)
        # The text of a filter names its columns; a name too many costs a column.
        text = "" if filter is None else str(filter)
        read = [*wanted, *(name for name in self._schema.names if name not in wanted and name in text)]
        schema = pa.schema([self._schema.field(name) for name in read])
        reader = pa.RecordBatchReader.from_batches(schema, self._told(read))
        return ds.Scanner.from_batches(reader, columns=wanted, filter=filter, use_threads=False)

    def _told(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows.batches(columns)
        except Exception as error:
            self._failed(error)
            raise
