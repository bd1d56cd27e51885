"""Messages straight from history's Parquet files, with no broker in between.

A stretch is a run of entries that lie in one place: a file, or the broker. Which entries a range has is the
same whether they were offloaded or not, so a file that went away, or cannot be reached from here, is no loss:
its entries are asked of the broker.

Rows of a file become the table's columns by Arrow alone. Files with entries that were kept whole, or with
pieces of large messages, are rebuilt into entries and decoded like what brokers send.

Source: docs/internals/history-format.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from magnetar.arrow.decode import Decoder
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.history import layout
from magnetar.history.reader import SegmentReader
from magnetar.spark.history_columns import SegmentColumns
from magnetar.spark.stretches import HistoryFile, Stretch
from magnetar.tiered.parquet.api import SegmentSummary

_log = logging.getLogger("magnetar.spark")

_BYTES_AT_ONCE = 8 << 20
"""Of entries that are rebuilt together."""


class _Ranges:
    """A file of any store as a source of ranges for `SegmentReader`."""

    def __init__(self, file: pa.NativeFile, name: str) -> None:
        self.name = name
        self.size = file.size()
        self._file = file

    def read_at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return bytes(self._file.read(length))


def _open(file: HistoryFile) -> pa.NativeFile:
    """Opens an object by the store's URL; credentials come from the environment. Raises OSError."""
    parts = urlsplit(file.url)
    if parts.scheme == "file":
        return fs.LocalFileSystem().open_input_file(f"{unquote(parts.path).rstrip('/')}/{file.name}")
    options = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    where = f"{parts.netloc}{parts.path}".strip("/")
    if parts.scheme == "s3":
        endpoint = unquote(options["endpoint"]) if "endpoint" in options else None
        store = fs.S3FileSystem(region=options.get("region"), endpoint_override=endpoint)
    elif parts.scheme == "gs":
        store = fs.GcsFileSystem()
    else:
        store = fs.HadoopFileSystem(parts.hostname or "default", parts.port or 0, user=options.get("user"))
        where = parts.path.strip("/")
    return store.open_input_file(f"{where}/{file.name}")


def read_stretch(
    topic: TopicName, stretch: Stretch, decoder: Decoder, columns: SegmentColumns
) -> Iterator[pa.RecordBatch | Position]:
    """The rows of a stretch in a file, and after each part of it the first entry behind that part.

    Ends early, and says so in the log, when the file cannot be read: the caller asks the broker for the rest.
    What is wrong with values is raised.
    """
    assert stretch.file is not None
    ledger_id, first = stretch.start
    stop = stretch.end[1]
    try:
        opened = _open(stretch.file)
        file = pq.ParquetFile(opened)
        plain = _is_plain(file.metadata)
    except (OSError, pa.ArrowException, MagnetarError) as error:
        _log.warning("history of %s is read by the broker: %s: %s", topic, stretch.file.name, error)
        return
    with opened:
        if not plain:
            segment = SegmentReader(_Ranges(opened, stretch.file.name))
            yield from _rebuilt(segment, ledger_id, first, stop, decoder)
            return
        names = columns.names(file.schema_arrow.names)
        for group in range(file.metadata.num_row_groups):
            low, high = _entries_of(file.metadata.row_group(group))
            if high < first or low >= stop:
                continue
            try:
                table = file.read_row_group(group, columns=names, use_threads=False)
            except (OSError, pa.ArrowException) as error:
                _log.warning("history of %s is read by the broker: %s: %s", topic, stretch.file.name, error)
                return
            yield from columns.batches(table, first, stop)
            yield Position(ledger_id, min(high + 1, stop))


def _is_plain(metadata: pq.FileMetaData) -> bool:
    """Whether no row is an entry that was kept whole or a piece of a large message. Raises HistoryError."""
    summary = SegmentSummary.from_json((metadata.metadata or {}).get(layout.SUMMARY_KEY.encode(), b""))
    if summary.raw_entries:
        return False
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    number = paths.index("chunk_uuid")
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        statistics = rows.column(number).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count != rows.num_rows:
            return False
    return True


def _entries_of(rows: pq.RowGroupMetaData) -> tuple[int, int]:
    """First and last entry of a row group."""
    for number in range(rows.num_columns):
        column = rows.column(number)
        if column.path_in_schema == "entry_id" and column.statistics is not None:
            return int(column.statistics.min), int(column.statistics.max)
    return 0, (1 << 63) - 2


def _rebuilt(
    reader: SegmentReader, ledger_id: int, first: int, stop: int, decoder: Decoder
) -> Iterator[pa.RecordBatch | Position]:
    """The same by way of the entries."""
    while first < stop:
        entries = EntryColumns()
        for run in reader.entries(first, _BYTES_AT_ONCE):
            index = run.base_index
            for offset, entry in enumerate(run.entries):
                index += run.count_of(offset)
                number = run.first_entry + offset
                if first <= number < stop:
                    entries.add(ledger_id, number, entry, index - 1, run.broker_time_ms)
        if not len(entries):
            return
        first = entries.entry_ids[-1] + 1
        yield from decoder.decode(entries)
        yield Position(ledger_id, first)
