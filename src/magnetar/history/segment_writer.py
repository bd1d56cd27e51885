"""Writes the entries of a ledger as a segment.

Row groups end between entries. Each is built, compared and written as a whole, so that one row group bounds
the memory, whatever the size of the ledger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.arrow import metadata_fields as number
from magnetar.base.entries import EntryRun
from magnetar.history import layout
from magnetar.history.building import build_rows
from magnetar.history.codecs import PLAIN_BYTES_MAX
from magnetar.history.columns import SCHEMA
from magnetar.history.files import SummedFile
from magnetar.history.key_index import VERSION, KeyIndexBuilder
from magnetar.history.left_out import LeftOutBuilder
from magnetar.history.manners import AtOnce, Manners
from magnetar.history.spans import LedgerSpan, Start, encode
from magnetar.history.value_column import ValueColumn, leaves_of
from magnetar.history.vectors import EntryVector, read_vector
from magnetar.tiered.parquet.parquet_history import (
    FORMAT_OF_ONE_LEDGER,
    FORMAT_OF_SEVERAL_LEDGERS,
    FORMAT_VERSION,
    HistoryError,
    SegmentOrigin,
    SegmentSummary,
)
from magnetar.tiered.parquet.stored_schemas import encode_schemas

ROW_GROUP_BYTES: Final = 16 << 20
"""Payload bytes of a row group: the most that a look-up reads and that a consumer's read decodes at a time.
Larger row groups would not make scans faster."""
ROW_GROUP_ROWS: Final = 1 << 17

VECTOR_BYTES: Final = 4 << 20
"""Bytes of entries that are built together. Each vector costs some thousand calls, whatever its size."""

_PLAIN_BYTES_MAX: Final = 64 << 20
"""Most bytes of uncompressed payloads that are built together, by the sizes in their metadata."""

_KEY_STORED_BYTES: Final = 64

_DICTIONARY: Final = [
    "key",
    "producer_name",
    "properties.key_value.key",
    "properties.key_value.value",
    "schema_version",
    "replicated_from",
    "batch_size",
    "compression",
    "entry_fields",
    "message_fields",
    "marker_type",
    "chunk_uuid",
]
"""Columns that usually have few distinct values; with many, Parquet's writer falls back to plain encoding."""

_ENCODINGS: Final = dict.fromkeys(
    (
        "ledger_id",
        "entry_id",
        "batch_index",
        "entry_index",
        "broker_time",
        "publish_time",
        "event_time",
        "sequence_id",
        "deliver_at",
    ),
    "DELTA_BINARY_PACKED",
)
"""Encodings of columns whose numbers grow by about the same step."""

_WITHOUT_STATISTICS: Final = {"payload"}
"""Columns without statistics. Readers of entries skip other columns whose statistics show a single value."""


class SegmentWriter:
    """Writes one segment to a local file. Not thread-safe."""

    def __init__(self, path: str, origin: SegmentOrigin, manners: Manners | None = None) -> None:
        """`path` must not exist. `manners`: how the work is done; None: at once. Raises OSError.

        The segment has entries of one ledger; with `origin.merged`, of several ledgers in order.
        """
        self._path = path
        self._origin = origin
        self._manners = AtOnce() if manners is None else manners
        self._ledgers: list[LedgerSpan] = []
        self._starts: list[Start] = []
        self._values = ValueColumn(origin.schemas)
        self._schema = SCHEMA if self._values.field is None else SCHEMA.append(self._values.field)
        self._file = SummedFile(path, self._manners)
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pq.ParquetWriter(self._sink, self._schema, **_writer_options(self._schema))
        self._keys = KeyIndexBuilder()
        self._left_out = LeftOutBuilder()
        self._batches: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._waiting: list[EntryRun] = []
        self._waiting_bytes = 0
        self._base_index = 0
        self._counts: dict[str, int] = dict.fromkeys(
            ("rows", "messages", "raw_bytes", "raw_entries", "groups"), 0
        )
        self._broker_times: list[int] = []
        self._publish_times: list[int] = []

    @property
    def raw_bytes(self) -> int:
        """Bytes of the entries taken so far."""
        return self._counts["raw_bytes"]

    def add(self, runs: Iterable[EntryRun]) -> None:
        """Takes the next entries. Raises OSError; HistoryError when they do not follow the last entry."""
        runs = list(runs)
        for run in runs:
            if not self._ledgers:
                self._base_index = run.base_index
            self._check_next(run)
            self._broker_times.append(run.broker_time_ms)
        runs = self._left_out.taken(runs)
        for run in runs:
            self._counts["messages"] += run.message_count
            self._counts["raw_bytes"] += run.size_bytes
        self._waiting += runs
        self._waiting_bytes += sum(run.size_bytes for run in runs)
        if self._waiting_bytes >= VECTOR_BYTES:
            *parts, self._waiting = _parts(self._waiting)
            self._waiting_bytes = sum(run.size_bytes for run in self._waiting)
            for part in parts:
                self._take(part)

    def _check_next(self, run: EntryRun) -> None:
        origin = self._origin
        last = self._ledgers[-1] if self._ledgers else None
        if last is None or (origin.merged and run.ledger_id > last.ledger_id):
            ledger_id = origin.ledger_id if last is None else run.ledger_id
            self._ledgers.append(LedgerSpan(run.ledger_id, run.first_entry, run.last_entry))
        else:
            ledger_id = last.ledger_id
            if run.first_entry != last.last_entry + 1:
                raise HistoryError(f"{run!r} follows entry {last.last_entry} of {origin.topic}")
            self._ledgers[-1] = last._replace(last_entry=run.last_entry)
        if run.ledger_id != ledger_id:
            raise HistoryError(f"{run!r} is not of ledger {ledger_id}")

    def _take(self, runs: Sequence[EntryRun]) -> None:
        self._manners.compute(lambda: self._add_rows(runs))
        self._file.drain()

    def _add_rows(self, runs: Sequence[EntryRun]) -> None:
        vector = read_vector(runs)
        if len(vector) > 1 and _plain_bytes(vector) > _PLAIN_BYTES_MAX:
            for half in _halves(runs):
                self._add_rows(half)
            return
        batch = build_rows(vector)
        if self._values.field is not None:
            columns = [*batch.columns, self._values.decode(batch)]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not self._batches:
            self._starts.append(Start(runs[0].ledger_id, runs[0].first_entry))
        self._batches.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.column("payload").nbytes + batch.column("raw_entry").nbytes
        self._counts["raw_entries"] += batch.num_rows - batch.column("raw_entry").null_count
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._end_row_group()

    def _end_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._pending_bytes, self._pending_rows = [], 0, 0
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._keys.add(_contiguous(table.column("key")))
        times = pc.min_max(table.column("publish_time"))
        if times["min"].is_valid:
            self._publish_times += [times["min"].value // 1000, times["max"].value // 1000]
        self._counts["rows"] += table.num_rows
        self._counts["groups"] += 1

    def finish(self) -> SegmentSummary:
        """Completes and syncs the file. Raises OSError; HistoryError without any entry."""
        if not self._ledgers:
            raise HistoryError(f"a segment of {self._origin.topic} without entries")
        if self._waiting:
            self._take(self._waiting)
        if self._batches:
            self._manners.compute(self._end_row_group)
            self._file.drain()
        section, keys = self._keys.finish()
        kept: dict[str, str] = {}
        if section:
            # Not buffered: bytes written to the sink are in the file.
            place = layout.KeyIndexPlace(self._file.size, len(section), _bits(section), VERSION)
            self._sink.write(section)
            kept[layout.KEY_INDEX_KEY] = place.encode()
        # Readers of files of one ledger need not support those of several, nor either of them gaps.
        version = FORMAT_OF_SEVERAL_LEDGERS if len(self._ledgers) > 1 else FORMAT_OF_ONE_LEDGER
        if left_out := self._left_out.finish():
            version = FORMAT_VERSION
            kept[layout.LEFT_OUT_KEY] = layout.SectionPlace(self._file.size, len(left_out)).encode()
            self._sink.write(left_out)
        summary = self._summary(keys)
        kept |= {
            layout.FORMAT_KEY: str(version),
            layout.TOPIC_KEY: self._origin.topic,
            layout.RANGE_KEY: encode(self._ledgers),
            layout.SUMMARY_KEY: summary.to_json(),
        }
        if len(self._ledgers) > 1:
            kept[layout.STARTS_KEY] = encode(self._starts)
        if self._origin.schemas:
            kept[layout.SCHEMAS_KEY] = encode_schemas(self._origin.schemas)
        self._writer.add_key_value_metadata(kept)
        self._writer.close()
        self._sink.flush()
        self._file.sync()
        self._file.close()
        return self._summary(keys)

    def _summary(self, keys: int) -> SegmentSummary:
        counts = self._counts
        is_open = not self._file.closed
        return SegmentSummary(
            topic=self._origin.topic,
            ledger_id=self._origin.ledger_id,
            first_entry=self._ledgers[0].first_entry,
            last_entry=self._ledgers[-1].last_entry,
            rows=counts["rows"],
            messages=counts["messages"],
            base_index=self._base_index,
            raw_bytes=counts["raw_bytes"],
            file_bytes=0 if is_open else self._file.size,
            crc32c=0 if is_open else self._file.crc32c,
            publish_time_min_ms=min(self._publish_times, default=None),
            publish_time_max_ms=max(self._publish_times, default=None),
            broker_time_min_ms=min(self._broker_times),
            broker_time_max_ms=max(self._broker_times),
            raw_entries=counts["raw_entries"],
            keys=keys,
            key_min=(self._keys.key_min or b"")[:_KEY_STORED_BYTES],
            key_max=(self._keys.key_max or b"")[:_KEY_STORED_BYTES],
            row_groups=counts["groups"],
        )

    def abort(self) -> None:
        """Removes the file, complete or not."""
        with contextlib.suppress(OSError, pa.ArrowException):
            # Writes a footer, which may fail as what came before has; the file goes in any case.
            self._writer.close()
        self._file.close()
        with contextlib.suppress(FileNotFoundError):  # gone is what was asked for
            os.unlink(self._path)


def write_segment(
    runs: Iterable[EntryRun], origin: SegmentOrigin, path: str, manners: Manners | None = None
) -> SegmentSummary:
    """Writes these consecutive entries to the new file `path`. On any error there is no file.

    `manners`: how the work is done; None: at once. Raises HistoryError, OSError.
    """
    writer = SegmentWriter(path, origin, manners)
    try:
        for run in runs:
            writer.add((run,))
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def _writer_options(schema: pa.Schema) -> dict[str, object]:
    leaves = dict(leaf for field in schema for leaf in leaves_of(field))
    statistics = [path for path in leaves if path not in _WITHOUT_STATISTICS]
    # Of values, whole numbers are written by their differences, all else that repeats by a dictionary.
    values = {path: kind for path, kind in leaves.items() if path.startswith("value.")}
    whole = [path for path, kind in values.items() if _is_whole(kind)]
    repeated = [path for path in values if path not in whole]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [*_DICTIONARY, *repeated],
        "column_encoding": _ENCODINGS | dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        "write_statistics": statistics,
        "write_page_index": True,
        "write_page_checksum": True,
        "sorting_columns": pq.SortingColumn.from_ordering(
            schema, [(name, "ascending") for name in ("ledger_id", "entry_id", "batch_index")]
        ),
        # Readers get plain Arrow types; the ids of columns are Parquet's own.
        "store_schema": False,
    }


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _bits(section: bytes) -> int:
    return int.from_bytes(section[8:12], "little")


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _plain_bytes(vector: EntryVector) -> int:
    """Bytes of the payloads after decompression, by their metadata, up to the size that is ever opened."""
    sizes = vector.fields.numbers(number.PLAIN_SIZE)
    claimed = sizes[
        (vector.fields.numbers(number.COMPRESSION) != 0) & (sizes <= PLAIN_BYTES_MAX) & (sizes > 0)
    ]
    return int(claimed.sum())


def _parts(runs: Iterable[EntryRun]) -> Iterator[list[EntryRun]]:
    """The entries in parts of VECTOR_BYTES or a little more; the last one is smaller, or empty."""
    part: list[EntryRun] = []
    size_bytes = 0
    for run in runs:
        start = 0
        for at, entry in enumerate(run.entries):
            size_bytes += len(entry)
            if size_bytes >= VECTOR_BYTES:
                yield [*part, run.slice(start, at + 1)]
                part, size_bytes, start = [], 0, at + 1
        if start < len(run.entries):
            part.append(run.slice(start, len(run.entries)))
    yield part


def _halves(runs: Sequence[EntryRun]) -> Iterator[Sequence[EntryRun]]:
    """Two parts with at least one entry each."""
    if len(runs) > 1:
        middle = len(runs) // 2
        yield from (runs[:middle], runs[middle:])
    else:
        (run,) = runs
        middle = len(run.entries) // 2
        yield from ([run.slice(0, middle)], [run.slice(middle, len(run.entries))])
