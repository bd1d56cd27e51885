"""Reads messages directly from the Parquet files of history, without a broker.

A stretch is a run of entries in one place: a file, or the broker. The broker serves the entries of
all files too. When a file was deleted or cannot be reached, its entries are therefore read from the broker.

Arrow alone turns rows of a file into the table's columns. Files that hold whole entries or pieces of large
messages are rebuilt into entries, which are decoded as those from brokers.

Source: docs/internals/history-format.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from magnetar.arrow.decode import Decoder
from magnetar.arrow.row_filter import RowFilter
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.history.end import read_end
from magnetar.history.files import PathSource, WithEnd
from magnetar.history.reader import SegmentReader
from magnetar.tables.history_columns import SegmentColumns
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile, Stretch
from magnetar.tiered.stores.ranges import open_ranges

_log = logging.getLogger("magnetar.tables")

_BYTES_AT_ONCE = 8 << 20
"""Bytes of entries that are rebuilt together."""
_UNREADABLE = (OSError, pa.ArrowException, MagnetarError)
"""Errors of a file that was deleted or cannot be reached."""


class _LocalSegment:
    """A file on this machine, opened by Arrow itself, which is the fastest way."""

    def __init__(self, source: PathSource) -> None:
        """Raises OSError, ArrowException, MagnetarError."""
        self._file = pq.ParquetFile(
            fs.LocalFileSystem().open_input_file(source.path),
            # Arrow itself would trust what stands in the file.
            metadata=read_end(source).metadata,
            page_checksum_verification=True,
        )
        self.metadata = self._file.metadata
        self.names: list[str] = self._file.schema_arrow.names

    def row_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)


def local_path(file: HistoryFile) -> str | None:
    """The path of a file on this machine; None for a file of an object store."""
    source = _local(file)
    return None if source is None else source.path


def _local(file: HistoryFile) -> PathSource | None:
    """The source of a file on this machine; None for a file of an object store."""
    parts = urlsplit(file.url)
    if parts.scheme != "file":
        return None
    path = f"{unquote(parts.path).rstrip('/')}/{file.name}"
    return PathSource(path, path, file.size_bytes, footer=file.footer)


def _open(file: HistoryFile) -> _LocalSegment | SegmentReader:
    """Opens a file to read its columns. Raises OSError, ArrowException, MagnetarError."""
    source = _local(file)
    return open_segment(file) if source is None else _LocalSegment(source)


def open_segment(file: HistoryFile) -> SegmentReader:
    """A reader of the file's footer, entries and keys. Raises OSError, MagnetarError."""
    source = _local(file)
    if source is not None:
        return SegmentReader(source)
    return SegmentReader(WithEnd(open_ranges(file.url, file.name, file.size_bytes), file.footer))


def _entries_of_file(file: HistoryFile, segment: _LocalSegment | SegmentReader) -> SegmentReader:
    """Opens the same file to read its entries."""
    return segment if isinstance(segment, SegmentReader) else open_segment(file)


class LastFile:
    """Keeps the last file open: after small files were merged, the next stretch is often in the same file."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None
        self._segment: _LocalSegment | SegmentReader | None = None
        self._group: tuple[int, list[str], pa.Table] | None = None
        self._keys: tuple[tuple[str, str], frozenset[bytes], frozenset[int]] | None = None

    def open(self, file: HistoryFile) -> _LocalSegment | SegmentReader:
        """Opens the file to read its columns. Raises OSError, ArrowException, MagnetarError."""
        if self._segment is None or self._place != file.place:
            self._segment, self._group = _open(file), None
            self._place = file.place
        return self._segment

    def groups_with(self, file: HistoryFile, keys: frozenset[bytes]) -> frozenset[int]:
        """The row groups of that file that may hold one of these keys. Raises the errors of `open`."""
        if self._keys is None or self._keys[:2] != (file.place, keys):
            self._keys = file.place, keys, self._groups_with(file, keys)
        return self._keys[2]

    def _groups_with(self, file: HistoryFile, keys: frozenset[bytes]) -> frozenset[int]:
        return _entries_of_file(file, self.open(file)).row_groups_with(keys)

    def shared_group(self, group: int, names: list[str]) -> pa.Table:
        """A row group of that file with rows of several ledgers. Raises the errors of `open`."""
        assert self._segment is not None, "no file was opened"
        if self._group is None or self._group[:2] != (group, names):
            self._group = None
            self._group = group, names, self._segment.row_group(group, names)
        return self._group[2]


def read_stretch(
    topic: TopicName, stretch: Stretch, decoder: Decoder, columns: SegmentColumns, last: LastFile
) -> Iterator[pa.RecordBatch | Position]:
    """Yields the rows of a stretch in a file, and after each part the position behind that part.

    `last` is the same for all stretches of a range. When the file cannot be read, the rows end early and a
    log line says so; the caller reads the rest from the broker. Errors of values are raised.
    """
    assert stretch.file is not None
    ledger_id, first = stretch.start
    stop = stretch.end[1]
    try:
        segment = last.open(stretch.file)
        plain = SegmentTraits.of(segment.metadata).is_plain
        entries = None if plain else _entries_of_file(stretch.file, segment)
        names = columns.names(segment.names)
        keys = columns.rows.keys if plain else None
        having = None if keys is None else last.groups_with(stretch.file, keys)
    except _UNREADABLE as error:
        _tell(topic, stretch.file, error)
        return
    if entries is not None:
        yield from _rebuilt(topic, stretch.file, entries, (ledger_id, first, stop), decoder)
        return
    for group in range(segment.metadata.num_row_groups):
        rows = segment.metadata.row_group(group)
        ledgers, (low, high) = _bounds(rows, "ledger_id"), _bounds(rows, "entry_id")
        if not ledgers[0] <= ledger_id <= ledgers[1]:
            continue
        alone = ledgers[0] == ledgers[1]
        if alone and (high < first or low >= stop):
            continue
        if (having is not None and group not in having) or not _may_be_wanted(rows, columns.rows):
            continue
        try:
            if alone:
                table = segment.row_group(group, names)
            else:
                # Small files of several ledgers were merged.
                table = last.shared_group(group, sorted({*names, "ledger_id"}))
        except _UNREADABLE as error:
            _tell(topic, stretch.file, error)
            return
        if not alone:
            table = table.filter(pc.equal(table["ledger_id"], ledger_id))
            high = pc.max(table["entry_id"]).as_py() if table.num_rows else -1
        yield from columns.batches(table, first, stop)
        yield Position(ledger_id, max(first, min(high + 1, stop)))
    # Row groups without matching rows were skipped.
    yield Position(ledger_id, stop)


def _may_be_wanted(rows: pq.RowGroupMetaData, wanted: RowFilter) -> bool:
    """Whether a row group may have matching rows, by the statistics of its publish times."""
    if wanted.published_from_ms is None and wanted.published_until_ms is None:
        return True
    number = next(
        (at for at in range(rows.num_columns) if rows.column(at).path_in_schema == "publish_time"), None
    )
    statistics = None if number is None else rows.column(number).statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
        # Messages without a publish time have the time 0, in 1970.
        return True
    earliest_ms, latest_ms = (round(time.timestamp() * 1000) for time in (statistics.min, statistics.max))
    return not (
        (wanted.published_from_ms is not None and latest_ms < wanted.published_from_ms)
        or (wanted.published_until_ms is not None and earliest_ms > wanted.published_until_ms)
    )


def traits_of(file: HistoryFile) -> SegmentTraits | None:
    """The traits in the file's footer; None when the file cannot be read from here."""
    try:
        return SegmentTraits.of(_open(file).metadata)
    except _UNREADABLE:
        return None


def _tell(topic: TopicName, file: HistoryFile, error: Exception) -> None:
    _log.warning("history of %s is read by the broker: %s: %s", topic, file.name, error)


def _bounds(rows: pq.RowGroupMetaData, name: str) -> tuple[int, int]:
    """The lowest and the highest number in a column of a row group."""
    for number in range(rows.num_columns):
        column = rows.column(number)
        if column.path_in_schema == name and column.statistics is not None:
            return int(column.statistics.min), int(column.statistics.max)
    return 0, (1 << 63) - 2


def _rebuilt(
    topic: TopicName,
    file: HistoryFile,
    reader: SegmentReader,
    entries_of_ledger: tuple[LedgerId, int, int],
    decoder: Decoder,
) -> Iterator[pa.RecordBatch | Position]:
    """As `read_stretch`, by rebuilding entries. `entries_of_ledger`: ledger, first entry, entry behind the
    last."""
    ledger_id, first, stop = entries_of_ledger
    while first < stop:
        try:
            runs = reader.entries(ledger_id, first, _BYTES_AT_ONCE)
        except _UNREADABLE as error:
            _tell(topic, file, error)
            return
        entries = EntryColumns()
        for run in runs:
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
