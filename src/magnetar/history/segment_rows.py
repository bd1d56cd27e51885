"""A segment as Parquet: what its footer says, and rows of its row groups, read in ranges.

The first use reads the end of the file, which holds the footer as a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.base.ids import LedgerId
from magnetar.history import layout
from magnetar.history.end import End, read_end, sound
from magnetar.history.files import Room, Windows
from magnetar.history.left_out import NOTHING, LeftOut
from magnetar.history.spans import EntrySpans, Start, decode_ledgers, decode_starts
from magnetar.tiered.parquet.parquet_history import (
    ByteSource,
    DamagedRowsError,
    DamagedSegmentError,
    SegmentSummary,
    StoredTopicSchema,
)
from magnetar.tiered.parquet.stored_schemas import decode_schemas

GAP_BYTES: Final = 64 << 10
"""Bytes. Columns with a smaller gap are read together, since that costs less than another read."""


class SegmentRows:
    """Reads one segment. Not thread-safe. Every call raises DamagedSegmentError when the file is not a
    segment, and the errors of its source."""

    def __init__(self, source: ByteSource, room: Room | None = None) -> None:
        """Reads nothing yet. `room`: the buffer that readers used in turn share."""
        self._source = source
        self._windows = Windows(source, room or Room())

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
            # Without rows there is nothing to tell.
            text = self._kept.get(layout.STARTS_KEY.encode(), b"")
            starts = decode_starts(text) if groups or text else []
        if len(starts) != groups:
            raise DamagedSegmentError(f"{self._source.name} tells of other row groups than it has")
        return EntrySpans(self._source.name, ledgers, starts)

    @cached_property
    def _left_out(self) -> LeftOut:
        text = self._kept.get(layout.LEFT_OUT_KEY.encode())
        if text is None:
            return NOTHING
        place = layout.SectionPlace.decode(text.decode())
        return LeftOut.decode(self._source.name, self._section("what it leaves out", *place))

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Numbers of the Parquet columns of each column."""
        leaves: dict[str, list[int]] = {}
        schema = self._metadata.schema
        for at in range(len(schema)):
            leaves.setdefault(schema.column(at).path.split(".")[0], []).append(at)
        return leaves

    def _statistics(self, group: int, name: str) -> pq.Statistics:
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

    def _section(self, what: str, at: int, length: int) -> bytes:
        """Bytes that lie before the footer."""
        if min(at, length) < 0 or at + length > self._source.size:
            raise DamagedSegmentError(f"{self._source.name}: {what} is cut off")
        in_tail = at - (self._source.size - len(self._end.tail))
        if in_tail >= 0:
            # The end of the file was read with its footer.
            return self._end.tail[in_tail : in_tail + length]
        return self._source.read_at(at, length)
