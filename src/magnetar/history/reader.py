"""Reads a segment in ranges: rebuilds entries, finds positions by time and messages by key.

The first use reads the end of the file, which usually includes the whole footer. A row group costs one read
of the needed columns. The rebuilt entries of the last row group are kept, so that a sequential read needs no
further reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.arrow.fields import Ints
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history import key_index, layout
from magnetar.history.columns import REBUILD_COLUMNS
from magnetar.history.end import End, read_end, sound
from magnetar.history.files import Room, Windows
from magnetar.history.metadata import Rows
from magnetar.history.pieces import byte_lengths
from magnetar.history.rebuild import RebuiltEntries, rebuild
from magnetar.history.same import same_columns
from magnetar.history.spans import EntrySpans, Start, decode_ledgers, decode_starts
from magnetar.tiered.parquet.parquet_history import (
    ByteSource,
    DamagedRowsError,
    DamagedSegmentError,
    FoundMessage,
    MessagePlace,
    SegmentSummary,
    StoredTopicSchema,
)
from magnetar.tiered.parquet.stored_schemas import decode_schemas

GAP_BYTES: Final = 64 << 10
"""Bytes. Columns with a smaller gap are read together, since that costs less than another read."""

_FOUND_COLUMNS: Final = (
    "ledger_id",
    "entry_id",
    "batch_index",
    "entry_index",
    "publish_time",
    "event_time",
    "broker_time",
    "key",
    "key_is_string",
    "properties",
    "producer_name",
    "sequence_id",
    "schema_version",
    "chunk_count",
    "is_null_value",
    "is_compacted_out",
    "payload",
)


class SegmentReader:
    """Reads one segment. Not thread-safe. Every call raises DamagedSegmentError when the file is not a
    segment, and the errors of its source."""

    def __init__(self, source: ByteSource, room: Room | None = None) -> None:
        """Reads nothing yet. `room`: the buffer that readers used in turn share."""
        self.key_damage = ""
        """Damage of the key index, once it was read; empty: none is known."""
        self._source = source
        self._windows = Windows(source, room or Room())
        self._rebuilt: dict[tuple[int, int], tuple[RebuiltEntries, Ints]] = {}
        """Rebuilt entries by ledger, with their ends, of the row group read last and of the next one."""
        self._table: tuple[int, pa.Table] | None = None
        """The row group that was read last, if it has several ledgers."""

    # ------------------------------------------------------------ what the file says of itself

    @property
    def metadata(self) -> pq.FileMetaData:
        """Parquet's footer."""
        return self._metadata

    @property
    def names(self) -> list[str]:
        """Names of its columns, in their order."""
        return list(self._leaves)

    @cached_property
    def _end(self) -> End:
        return read_end(self._source)

    @property
    def _metadata(self) -> pq.FileMetaData:
        return self._end.metadata

    @cached_property
    def _kept(self) -> dict[bytes, bytes]:
        return dict(self._metadata.metadata)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        with self._sound():
            return pq.ParquetFile(
                pa.PythonFile(self._windows, mode="r"),
                metadata=self._metadata,
                page_checksum_verification=True,
            )

    @cached_property
    def summary(self) -> SegmentSummary:
        """The summary of its writer, with 0 as size and checksum of the file."""
        return SegmentSummary.from_json(self._kept.get(layout.SUMMARY_KEY.encode(), b""))

    @cached_property
    def schemas(self) -> list[StoredTopicSchema]:
        """The topic's schemas when it was written."""
        text = self._kept.get(layout.SCHEMAS_KEY.encode())
        return decode_schemas(text) if text is not None else []

    @cached_property
    def spans(self) -> EntrySpans:
        """The ledgers of the segment, and their entries."""
        ledgers = decode_ledgers(self._kept.get(layout.RANGE_KEY.encode(), b""))
        groups = self._metadata.num_row_groups
        if len(ledgers) == 1:
            firsts = (self._statistics(group, "entry_id").min for group in range(groups))
            starts = [Start(ledgers[0].ledger_id, first) for first in firsts]
        else:
            starts = decode_starts(self._kept.get(layout.STARTS_KEY.encode(), b""))
        if len(starts) != groups:
            raise DamagedSegmentError(f"{self._source.name} tells of other row groups than it has")
        return EntrySpans(self._source.name, ledgers, starts)

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Numbers of the Parquet columns of each column."""
        leaves: dict[str, list[int]] = {}
        schema = self._metadata.schema
        for at in range(len(schema)):
            leaves.setdefault(schema.column(at).path.split(".")[0], []).append(at)
        return leaves

    def _statistics(self, group: int, name: str) -> Any:
        with self._sound():
            statistics = self._metadata.row_group(group).column(self._leaves[name][0]).statistics
        if statistics is None or not statistics.has_min_max:
            raise DamagedSegmentError(f"{self._source.name} has no statistics of {name}")
        return statistics

    @contextmanager
    def _sound(self, *, of_source: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Turns errors of pyarrow into DamagedSegmentError; `of_source`: error types of the source, which
        pass unchanged."""
        # Those of the source come from `load`, outside of this.
        with sound(self._source.name, of_source=of_source):
            yield

    @contextmanager
    def _of_entries(self, group: int, ledger_id: LedgerId) -> Iterator[None]:
        """Turns damage of a row group into DamagedRowsError with the entries of the ledger in that group."""
        try:
            with self._sound(of_source=(OSError,)):
                yield
        except DamagedSegmentError as error:
            raise DamagedRowsError(str(error), *self.spans.entries_in(group, ledger_id)) from error

    # ------------------------------------------------------------ rows

    def row_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """These columns of a row group. Costs one ranged read, a few when the columns are far apart."""
        self._windows.load(self._ranges(group, columns))
        try:
            with self._sound():
                return self._file.read_row_group(group, columns=list(columns), use_threads=False)
        finally:
            self._windows.forget()

    def _ranges(self, group: int, columns: Iterable[str]) -> list[tuple[int, int]]:
        row_group = self._metadata.row_group(group)
        chunks = []
        for leaf in sorted(chain.from_iterable(self._leaves.get(name, ()) for name in columns)):
            column = row_group.column(leaf)
            offset = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                offset = min(offset, column.dictionary_page_offset)
            chunks.append((offset, column.total_compressed_size))
        ranges: list[tuple[int, int]] = []
        for offset, length in sorted(chunks):
            if length < 0 or offset < 0 or offset + length > self._source.size:
                raise DamagedSegmentError(f"{self._source.name} has a column outside of the file")
            if ranges and offset - sum(ranges[-1]) <= GAP_BYTES:
                first = ranges[-1][0]
                ranges[-1] = (first, max(sum(ranges[-1]), offset + length) - first)
            else:
                ranges.append((offset, length))
        return ranges

    # ------------------------------------------------------------ entries

    def forget(self) -> None:
        """Frees the memory of rebuilt entries; the footer is kept."""
        self._rebuilt = {}
        self._table = None

    def entries(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[EntryRun]:
        """Entries of a ledger from `first_entry` on, which the segment must hold: as many as fit into
        `bytes_max`, at least one, at most to the end of a row group."""
        rebuilt, start, stop = self._stretch(ledger_id, first_entry, bytes_max)
        return rebuilt.runs(ledger_id, start, stop)

    def frame_parts(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[bytes | memoryview]:
        """As `entries`, but returns the parts of the body of a RUNS frame."""
        rebuilt, start, stop = self._stretch(ledger_id, first_entry, bytes_max)
        return rebuilt.frame_parts(ledger_id, start, stop)

    def _stretch(
        self, ledger_id: LedgerId, first_entry: int, bytes_max: int
    ) -> tuple[RebuiltEntries, int, int]:
        rebuilt, ends = self._group_with(ledger_id, first_entry)
        start = first_entry - rebuilt.first_entry
        if not 0 <= start < len(rebuilt):
            group = self.spans.group_with(ledger_id, first_entry)
            with self._of_entries(group, ledger_id):
                raise DamagedSegmentError(
                    f"{self._source.name} has no entry {first_entry} where its footer says"
                )
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        return rebuilt, start, stop

    def _group_with(self, ledger_id: LedgerId, entry: int) -> tuple[RebuiltEntries, Ints]:
        group = self.spans.group_with(ledger_id, entry)
        # A sequential reader does not read the entries before again.
        self._rebuilt = {at: kept for at, kept in self._rebuilt.items() if at[0] in (group, group + 1)}
        return self._rebuild(group, ledger_id)

    def _rebuild(self, group: int, ledger_id: LedgerId) -> tuple[RebuiltEntries, Ints]:
        found = self._rebuilt.get((group, ledger_id))
        if found is None:
            with self._of_entries(group, ledger_id):
                rebuilt = rebuild(self._rows_of(group, ledger_id))
                found = rebuilt, np.cumsum(byte_lengths(rebuilt.data))
            self._rebuilt[group, ledger_id] = found
        return found

    def _rows_of(self, group: int, ledger_id: LedgerId) -> Rows:
        """The rows of a ledger in a row group, with the columns that entries are rebuilt from."""
        if not self.spans.has_several:
            with self._sound():
                same = same_columns(self._metadata.row_group(group), self._leaves, REBUILD_COLUMNS)
            names = [name for name in REBUILD_COLUMNS if name not in same]
            return Rows.of_table(self.row_group(group, names), same)
        if self._table is None or self._table[0] != group:
            self._table = None
            # The row group stays: a sequential reader wants the next ledger of it.
            self._table = group, self.row_group(group, ("ledger_id", *REBUILD_COLUMNS))
        table = self._table[1]
        with self._sound():
            return Rows.of_table(table.take(pa.array(np.arange(*_rows_with(table, ledger_id)))))

    def ahead(self, ledger_id: LedgerId, entry: int) -> None:
        """Prepares the next read of a sequential reader at `entry`: rebuilds its row group or the next
        one."""
        if entry > self.spans.of(ledger_id).last_entry:
            return
        group = self.spans.group_with(ledger_id, entry)
        if (group, ledger_id) in self._rebuilt:
            group += 1
        if group in self.spans.groups_of(ledger_id):
            self._rebuild(group, ledger_id)

    # ------------------------------------------------------------ look-ups

    def position_at(self, ledger_id: LedgerId, time_ms: int) -> int | None:
        """The first entry of a ledger with broker time >= `time_ms`; None when there is none."""
        for group in self.spans.groups_of(ledger_id):
            if _milliseconds(self._statistics(group, "broker_time").max) < time_ms:
                continue
            with self._of_entries(group, ledger_id):
                table = self.row_group(group, ("ledger_id", "entry_id", "broker_time"))
                start, stop = _rows_with(table, ledger_id)
                rows = Rows.of_table(table.slice(start, stop - start))
                late = rows.column("broker_time").cast(pa.int64()).to_numpy() >= time_ms * 1000
                if late.any():
                    return int(rows.column("entry_id")[int(np.argmax(late))].as_py())
        return None

    def lookup(self, key: bytes, count_max: int, before: MessagePlace | None = None) -> list[FoundMessage]:
        """The last `count_max` messages with this key, newest first, before the place `before` if it is
        given. Raw entries are not searched."""
        found: list[FoundMessage] = []
        end = MessagePlace(LedgerId(1 << 62), 0, 0) if before is None else before
        for place in self._places(key):
            if self.spans.starts[place.row_group] > end[:2]:
                continue
            table = self.row_group(place.row_group, _FOUND_COLUMNS)
            chosen = pc.and_(
                pc.fill_null(pc.equal(table.column("key"), pa.scalar(key, pa.binary())), False),
                pc.and_(pc.is_valid(table.column("payload")), pc.invert(table.column("is_compacted_out"))),
            )
            messages = [
                row
                for row in table.filter(chosen).to_pylist()
                if (row["ledger_id"], row["entry_id"], row["batch_index"]) < end
            ]
            found += [self._message(row) for row in messages[::-1][: count_max - len(found)]]
            if len(found) >= count_max:
                break
        return found

    def row_groups_with(self, keys: Iterable[bytes]) -> frozenset[int]:
        """Numbers of the row groups that may have messages with one of these keys. Costs at most two ranged
        reads per key. Raw entries are not searched."""
        return frozenset(place.row_group for key in keys for place in self._places(key))

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Hashes of all keys, sorted, each once. Raises DamagedSegmentError for a damaged key index."""
        place = self._key_index
        if place is None:
            return np.zeros(0, np.uint64)
        records = key_index.read_records(self._read_key_index(place, 0, place.length))
        return np.unique(records["hash"].astype(np.uint64))

    @cached_property
    def _key_index(self) -> layout.KeyIndexPlace | None:
        text = self._kept.get(layout.KEY_INDEX_KEY.encode())
        return None if text is None else layout.KeyIndexPlace.decode(text.decode())

    def _read_key_index(self, place: layout.KeyIndexPlace, offset: int, length: int) -> bytes:
        at = place.offset + offset
        if offset + length > place.length or at + length > self._source.size:
            raise DamagedSegmentError(f"{self._source.name} has a key index that is cut off")
        in_tail = at - (self._source.size - len(self._end.tail))
        if in_tail >= 0:
            # The end of the file was read with its footer.
            return self._end.tail[in_tail : in_tail + length]
        return self._source.read_at(at, length)

    def _places(self, key: bytes) -> list[key_index.Place]:
        """Row groups that may have the key, last one first."""
        index = self._key_index
        if index is None:
            return []
        groups = self._metadata.num_row_groups
        try:
            if index.version > key_index.VERSION:
                raise DamagedSegmentError(f"its key index has version {index.version}, of a later release")
            places = key_index.find(key, partial(self._read_key_index, index), index.bits, index.version)
            if any(place.row_group >= groups for place in places):
                raise DamagedSegmentError("the key index is that of other row groups")
        except DamagedSegmentError as error:
            # The index is derived: the row groups have the same keys.
            self.key_damage = f"{self._source.name}: {error}"
            return [key_index.Place(group, 0) for group in reversed(range(groups))]
        return places

    def _message(self, row: dict[str, Any]) -> FoundMessage:
        return FoundMessage(
            ledger_id=row["ledger_id"],
            entry_id=row["entry_id"],
            batch_index=row["batch_index"],
            index=row["entry_index"],
            publish_time_ms=0 if row["publish_time"] is None else _milliseconds(row["publish_time"]),
            event_time_ms=None if row["event_time"] is None else _milliseconds(row["event_time"]),
            key=row["key"],
            key_is_string=row["key_is_string"] is not False,
            properties=tuple(row["properties"]),
            producer_name=row["producer_name"] or "",
            sequence_id=row["sequence_id"] or 0,
            broker_time_ms=_milliseconds(row["broker_time"]),
            schema_version=row["schema_version"] or b"",
            chunks=row["chunk_count"] or 1,
            is_null_value=row["is_null_value"],
            payload=row["payload"],
        )


def _rows_with(table: pa.Table, ledger_id: LedgerId) -> tuple[int, int]:
    """First and end row of a ledger in a table; needs the column `ledger_id`."""
    ids = table.column("ledger_id").to_numpy()
    return int(np.searchsorted(ids, ledger_id)), int(np.searchsorted(ids, ledger_id, side="right"))


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
