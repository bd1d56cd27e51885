"""Decodes entries into Arrow record batches.

The entries of one delivery form one buffer. The metadata of all entries, and of all messages in their
batches, is read as columns (`fields`). Payloads stay in place until one pass of Arrow's own code copies them
into the value column. No Python object is made for a message. Columns that were not requested cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow import arrays
from magnetar.arrow import metadata_fields as number
from magnetar.arrow.chunks import ChunkAssembler, PiecesBefore
from magnetar.arrow.fields import PADDING, Bytes, Fields, Ints, big_endian_u32, parse_fields
from magnetar.arrow.find_messages import find_messages
from magnetar.arrow.message_columns import MessageColumns, MessageRows
from magnetar.arrow.row_filter import RowFilter
from magnetar.arrow.values import Values
from magnetar.base.names import TopicName
from magnetar.client.compression import decompress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError

_PLAIN: Final = 0
_BATCH: Final = 1
_SEALED: Final = 2
"""Entry that its producer encrypted; it cannot be opened."""
_LEFT_OUT: Final = 3
"""Marker of the broker, or entry that the filter excludes."""


class Decoder:
    """Decodes entries of one topic or partition to the requested columns."""

    def __init__(
        self,
        topic: TopicName,
        columns: Sequence[str],
        *,
        values: Values | None = None,
        encrypted: str = "fail",
        rows: RowFilter | None = None,
        pieces_before: PiecesBefore | None = None,
    ) -> None:
        """Args: values: the type of payloads; None leaves them bytes. encrypted: "fail", "skip", or "bytes",
        which returns the payload of such an entry as one row. rows: filters rows early, before they cost
        much. pieces_before: finds the chunks of a large message that lie before the range that is read."""
        self._topic = topic
        self._base = str(topic.base)
        self._columns = tuple(columns)
        self._values = values
        self._encrypted = encrypted
        self._rows = rows
        self.schema = arrays.arrow_schema(self._columns, None if values is None else values.type)
        needed = set(self._columns)
        if rows is not None:
            needed |= rows.columns
        if values is not None and "value" in needed:
            needed |= values.columns
        self._entry_fields = number.ALWAYS | {
            field for name in needed for field in number.COLUMN_FIELDS.get(name, ())
        }
        self._single_fields = number.S_ALWAYS | {
            field for name in needed for field in number.S_COLUMN_FIELDS.get(name, ())
        }
        self._chunks = ChunkAssembler(topic, pieces_before)

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
        if fields.has(number.CHUNK_COUNT) and (fields.numbers(number.CHUNK_COUNT) > 1).any():
            # Pieces are assembled first, so none are left here.
            yield from self.decode(self._chunks.assemble(entries))
            return
        is_batch = fields.present(number.BATCH_COUNT)
        kinds = np.where(is_batch, _BATCH, _PLAIN)
        if fields.has(number.BATCH_COUNT):
            kinds[is_batch & (fields.numbers(number.BATCH_COUNT) == 0)] = _LEFT_OUT  # The batch is empty.
        if fields.has(number.ENCRYPTION_KEYS):
            kinds[self._encrypted_rows(entries, fields)] = (
                _SEALED if self._encrypted == "bytes" else _LEFT_OUT
            )
        kinds[fields.present(number.MARKER)] = _LEFT_OUT
        if self._rows is not None:
            kinds[~self._rows.entries(fields)] = _LEFT_OUT
        for first, stop in _runs(kinds):
            chosen = np.arange(first, stop)
            if kinds[first] == _BATCH:
                rows = self._open_batches(buffer, array, fields, payload, ends, chosen)
            else:
                sealed = bool(kinds[first] == _SEALED)
                rows = self._plain_entries(buffer, array, fields, payload, ends, chosen, sealed=sealed)
            if len(rows.entry):
                yield self._record_batch(entries, array, fields, rows)

    def _encrypted_rows(self, entries: EntryColumns, fields: Fields) -> Ints:
        """The encrypted entries. Raises PayloadError when there are some and the option `encrypted` is
        "fail"."""
        found = np.unique(fields.spans(number.ENCRYPTION_KEYS).rows)
        if self._encrypted == "fail":
            raise PayloadError(
                f"entry {entries.position(int(found[0]))} of {self._topic} is encrypted by its producer, and"
                " only a client with the keys can decrypt it: set encrypted=skip to leave such entries out,"
                " or encrypted=bytes for their payloads as they are"
            )
        return found

    def _open_batches(
        self, buffer: bytes, array: Bytes, fields: Fields, payload: Ints, ends: Ints, chosen: Ints
    ) -> MessageRows:
        counts = fields.numbers(number.BATCH_COUNT)
        kinds = fields.numbers(number.COMPRESSION)[chosen]
        starts, stops = payload[chosen], ends[chosen]
        if kinds.any():
            buffer, array, starts, stops = self._plain(buffer, fields, kinds, starts, stops, chosen)
        spans = find_messages(buffer, array, starts, stops, counts[chosen])
        rows = MessageRows()
        rows.buffer, rows.array, rows.is_batch = buffer, array, True
        rows.entry = np.repeat(chosen, counts[chosen])
        rows.count_of_entry = counts[rows.entry]
        rows.batch_index = _count_up(counts[chosen])
        rows.payload_start, rows.payload_end = spans.payload, spans.end
        rows.singles = parse_fields(array, spans.metadata, rows.payload_start, self._single_fields)
        return rows

    def _plain_entries(
        self,
        buffer: bytes,
        array: Bytes,
        fields: Fields,
        payload: Ints,
        ends: Ints,
        chosen: Ints,
        *,
        sealed: bool,
    ) -> MessageRows:
        """Rows of entries that are one message each; with `sealed` their payloads are not decompressed."""
        kinds = fields.numbers(number.COMPRESSION)[chosen]
        starts, stops = payload[chosen], ends[chosen]
        if kinds.any() and not sealed:
            buffer, array, starts, stops = self._plain(buffer, fields, kinds, starts, stops, chosen)
        rows = MessageRows()
        rows.buffer, rows.array, rows.is_batch, rows.singles = buffer, array, False, None
        rows.entry = chosen
        rows.count_of_entry = np.maximum(fields.numbers(number.BATCH_COUNT, 1)[chosen], 1)
        rows.batch_index = np.full(len(chosen), -1, np.int64)
        rows.payload_start, rows.payload_end = starts, stops
        return rows

    def _plain(
        self, buffer: bytes, fields: Fields, kinds: Ints, starts: Ints, stops: Ints, chosen: Ints
    ) -> tuple[bytes, Bytes, Ints, Ints]:
        """The decompressed payloads of these entries in a new buffer."""
        view = memoryview(buffer)
        sizes = fields.numbers(number.PLAIN_SIZE)[chosen].tolist()
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
        self, entries: EntryColumns, entry_array: Bytes, fields: Fields, rows: MessageRows
    ) -> pa.RecordBatch:
        # `fields` has one row per entry, `rows.singles` one per message.
        build = MessageColumns(self._topic, self._base, entries, entry_array, fields, rows, self._values)
        kept = None if self._rows is None else self._rows.messages(build)
        if rows.singles is not None and rows.singles.has(number.S_COMPACTED):
            there = rows.singles.numbers(number.S_COMPACTED) == 0
            kept = there if kept is None else kept & there
        if not self._columns:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows.entry), pa.struct([])))
        else:
            columns = [getattr(build, name)() for name in self._columns]
            typed = [
                column if column.type == kind else column.cast(kind)
                for column, kind in zip(columns, self.schema.types, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(typed, schema=self.schema)
        return batch if kept is None or kept.all() else batch.filter(pa.array(kept))


def _count_up(counts: Ints) -> Ints:
    """The numbers 0, 1, … below each count, concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)
    return numbers


def _runs(kinds: Ints) -> Iterator[tuple[int, int]]:
    """Start and end of each stretch of entries of one kind, without excluded ones."""
    changes = np.flatnonzero(np.diff(kinds)) + 1
    edges = [0, *changes.tolist(), len(kinds)]
    for first, stop in pairwise(edges):
        if kinds[first] != _LEFT_OUT:
            yield first, stop
