"""Divides spans of partitions into ranges for tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from magnetar.spark.errors import OptionError
from magnetar.spark.read.offsets import Offset
from magnetar.spark.read.planning import groups, pieces_of
from magnetar.spark.read.range_reading import RangePartition, SeveralRanges
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.read.spans import ReadSpan
from magnetar.tables.ledgers import EntryRange, KnownLog
from magnetar.tables.stretches import Stretch


def plan_ranges(
    options: ReadOptions, states: Mapping[str, KnownLog], spans: Sequence[ReadSpan]
) -> list[RangePartition]:
    """The ranges of all tasks. A partition may have several spans.

    Raises OptionError when the options ask for a split and the ledgers are unknown.
    """
    measured = [states[span.topic].measure(span.start.position, span.end.position) for span in spans]
    splits = options.partitions_min is not None or options.rows_per_partition_max is not None
    blind = [span.topic for span in spans if not states[span.topic].is_complete]
    if splits and blind:
        raise OptionError(
            f"minPartitions and maxRowsPerPartition need the admin interface to split {blind[0]}: give the"
            " option admin.url=http://host:8080"
        )
    rows = [_rows(span.start, span.end, each.entries) for span, each in zip(spans, measured, strict=True)]
    pieces = pieces_of(
        rows,
        [each.size_bytes for each in measured],
        partitions_min=options.partitions_min,
        rows_per_partition_max=options.rows_per_partition_max,
    )
    ranges = []
    for (topic, start, end), whole, count, number in zip(spans, measured, rows, pieces, strict=True):
        entries = max(whole.entries, 1)
        for piece in states[topic].split(start.position, end.position, number):
            share = count * piece.entries // entries
            stretches = states[topic].stretches(piece.start, piece.end) if options.history else []
            ranges.append(_range(topic, piece, share, stretches))
    return ranges


def tasks_of(options: ReadOptions, ranges: Sequence[RangePartition]) -> list[InputPartition]:
    """The partitions for tasks: one range each, or several when the ranges are very many and small.

    Options that fix the number of tasks keep one range for each.
    """
    if options.partitions_min is not None or options.rows_per_partition_max is not None:
        return list(ranges)
    found: list[InputPartition] = []
    for group in groups([each.size_bytes for each in ranges]):
        chosen = ranges[group.start : group.stop]
        found.append(chosen[0] if len(chosen) == 1 else SeveralRanges(tuple(chosen)))
    return found


def _rows(start: Offset, end: Offset, entries: int) -> int:
    """Count of messages of a span, exact when indexes are known; else the count of entries."""
    if start.message_index is not None and end.message_index is not None:
        return max(end.message_index - start.message_index, 0)
    return entries


def _range(topic: str, piece: EntryRange, rows: int, stretches: list[Stretch]) -> RangePartition:
    start, end = piece.start, piece.end
    return RangePartition(
        topic,
        (start.ledger_id, start.entry_id),
        (end.ledger_id, end.entry_id),
        rows,
        tuple(stretches),
        piece.size_bytes,
    )
