"""What a file of history says of its rows in its footer: which of them are not plain messages.

Source: docs/internals/history-format.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq

from magnetar.history import layout
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, SegmentSummary


@dataclass(frozen=True, slots=True)
class SegmentTraits:
    """Traits of a file by its statistics. They can report rows that do not exist, but never miss one."""

    is_plain: bool
    """Whether all rows are plain messages, without whole entries and pieces of large messages."""
    has_hidden: bool
    """Whether some rows may not be messages: markers, or rows that compaction removed from their batch."""
    has_nulls: bool
    """Whether some messages may have no value."""
    ledgers: frozenset[tuple[int, int, int]]
    """Content of the file: ledger, first and last entry of each; a merged file has several ledgers."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> SegmentTraits:
        """The traits from a footer. Raises HistoryError when it is not a segment's."""
        kept = metadata.metadata or {}
        summary = SegmentSummary.from_json(kept.get(layout.SUMMARY_KEY.encode(), b""))
        names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

        def is_null(name: str) -> bool:
            number = names.index(name)
            return all(_nulls(rows.column(number).statistics) == rows.num_rows for rows in groups)

        def is_false(name: str) -> bool:
            number = names.index(name)
            return all(_is_false(rows.column(number).statistics) for rows in groups)

        return cls(
            is_plain=not summary.raw_entries and is_null("chunk_uuid"),
            has_hidden=not (is_null("marker_type") and is_false("is_compacted_out")),
            has_nulls=not is_false("is_null_value"),
            ledgers=_ledgers(kept.get(layout.RANGE_KEY.encode(), b"")),
        )


def _ledgers(text: bytes) -> frozenset[tuple[int, int, int]]:
    try:
        found = [tuple(map(int, part.split(b":"))) for part in text.split(b",")]
        return frozenset((ledger_id, first, last) for ledger_id, first, last in found)
    except ValueError as error:
        raise DamagedSegmentError(f"a segment says that it has the entries {text[:200]!r}") from error


def _nulls(statistics: pq.Statistics | None) -> int | None:
    return statistics.null_count if statistics is not None and statistics.has_null_count else None


def _is_false(statistics: pq.Statistics | None) -> bool:
    return statistics is not None and statistics.has_min_max and statistics.max is False
