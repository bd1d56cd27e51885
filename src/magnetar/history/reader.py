"""Reads a segment in ranges: rebuilds entries, finds positions by time and messages by key.

The first use reads the end of the file, which usually includes the whole footer. A row group costs one read
of the needed columns. The rebuilt entries of the last row group are kept, so that a sequential read needs no
further reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.fields import Ints
from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history import key_index, layout
from magnetar.history.columns import REBUILD_COLUMNS
from magnetar.history.files import Room
from magnetar.history.left_out import Gap
from magnetar.history.metadata import Rows
from magnetar.history.pieces import byte_lengths
from magnetar.history.rebuild import RebuiltEntries, rebuild
from magnetar.history.same import same_columns
from magnetar.history.segment_rows import SegmentRows
from magnetar.tiered.parquet.frames import runs_parts
from magnetar.tiered.parquet.parquet_history import (
    ByteSource,
    DamagedSegmentError,
    FoundMessage,
    MessagePlace,
)

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


class _Given(NamedTuple):
    """What is given back at once."""

    ledger_id: LedgerId
    entries: RebuiltEntries
    start: int
    stop: int
    gaps: Sequence[Gap]

    def runs(self) -> list[EntryRun]:
        """The entries."""
        return self.entries.runs(self.ledger_id, self.start, self.stop, self.gaps)

    def frame_parts(self) -> list[bytes | memoryview]:
        """As `runs`, but returns the parts of the body of a RUNS frame."""
        return self.entries.frame_parts(self.ledger_id, self.start, self.stop, self.gaps)


class SegmentReader(SegmentRows):
    """Reads one segment. Not thread-safe. Every call raises DamagedSegmentError when the file is not a
    segment, and the errors of its source."""

    def __init__(self, source: ByteSource, room: Room | None = None) -> None:
        """See `SegmentRows`."""
        super().__init__(source, room)
        self.key_damage = ""
        """Damage of the key index, once it was read; empty: none is known."""
        self._rebuilt: dict[tuple[int, int], tuple[RebuiltEntries, Ints]] = {}
        """Rebuilt entries by ledger, with their ends, of the row group read last and of the next one."""
        self._table: tuple[int, pa.Table] | None = None
        """The row group that was read last, if it has several ledgers."""

    # ------------------------------------------------------------ entries

    def forget(self) -> None:
        """Frees the memory of rebuilt entries; the footer is kept."""
        self._rebuilt = {}
        self._table = None

    def entries(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[EntryRun]:
        """Entries of a ledger from `first_entry` on, which the segment must hold: as many as fit into
        `bytes_max`, at least one, at most to the end of a row group."""
        gap = self._left_out.gap_with(ledger_id, first_entry)
        if gap is not None:
            return [self._gap_run(gap, first_entry, bytes_max)]
        return self._stretch(ledger_id, first_entry, bytes_max).runs()

    def frame_parts(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[bytes | memoryview]:
        """As `entries`, but returns the parts of the body of a RUNS frame."""
        gap = self._left_out.gap_with(ledger_id, first_entry)
        if gap is not None:
            return [*runs_parts([self._gap_run(gap, first_entry, bytes_max)])]
        return self._stretch(ledger_id, first_entry, bytes_max).frame_parts()

    def _gap_run(self, gap: Gap, first_entry: int, bytes_max: int) -> EntryRun:
        self.spans.check(gap.ledger_id, first_entry)
        return gap.run(first_entry, bytes_max // len(LEFT_OUT))

    def _stretch(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> _Given:
        rebuilt, ends = self._group_with(ledger_id, first_entry)
        ids = rebuilt.entry_ids
        start = int(np.searchsorted(ids, first_entry))
        if start == len(ids) or ids[start] != first_entry:
            group = self.spans.group_with(ledger_id, first_entry)
            with self._of_entries(group, ledger_id):
                raise DamagedSegmentError(
                    f"{self._source.name} has no entry {first_entry} where its footer says"
                )
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        gaps = self._left_out.between(ledger_id, first_entry, int(ids[stop - 1])) if self._left_out else ()
        return _Given(ledger_id, rebuilt, start, stop, gaps)

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
                found = rebuilt, np.cumsum(byte_lengths(rebuilt.data)) + self._gap_bytes(ledger_id, rebuilt)
            self._rebuilt[group, ledger_id] = found
        return found

    def _gap_bytes(self, ledger_id: LedgerId, rebuilt: RebuiltEntries) -> Ints:
        """Bytes of what is given back for gaps before each entry."""
        ids = rebuilt.entry_ids
        missing = ids - ids[0] - np.arange(len(ids))
        if missing[-1] != self._left_out.count_between(ledger_id, int(ids[0]), int(ids[-1])):
            raise DamagedSegmentError(
                f"{self._source.name} has not all entries between {ids[0]} and {ids[-1]}"
            )
        sizes: Ints = missing * len(LEFT_OUT)
        return sizes

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
        gap = self._left_out.gap_with(ledger_id, entry)
        if gap is not None:
            entry = gap.first_entry + gap.entries
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
        if offset + length > place.length:
            raise DamagedSegmentError(f"{self._source.name} has a key index that is cut off")
        return self._section("its key index", place.offset + offset, length)

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
