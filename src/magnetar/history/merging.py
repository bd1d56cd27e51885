"""Merges several segments into one, entry by entry; consumers get the same entries from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.history.manners import AtOnce, Manners
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.tiered.parquet.parquet_history import ByteSource, SegmentOrigin, SegmentSummary

_BYTES: Final = 1 << 20
"""Bytes of entries that are read at a time."""


def entries_of(parts: Iterable[ByteSource], manners: Manners | None = None) -> Iterator[EntryRun]:
    """All entries of these segments, in order; one segment is open at a time.

    `manners`: how they are read; None: at once. Raises DamagedSegmentError and the errors of a source.
    """
    compute = (AtOnce() if manners is None else manners).compute
    for part in parts:
        reader = SegmentReader(part)
        for span in reader.spans.ledgers:
            entry = span.first_entry
            while entry <= span.last_entry:
                runs = compute(partial(reader.entries, span.ledger_id, entry, _BYTES))
                yield from runs
                entry = runs[-1].last_entry + 1


def alike(parts: Iterable[ByteSource]) -> list[int]:
    """Lengths of consecutive groups of these segments that were written with the same schemas.

    The column `value` has the fields of the newest schema. Segments with other schemas in the same file would
    lose fields or get fields that they did not have.
    """
    return [len(list(group)) for _, group in groupby(SegmentReader(part).schemas for part in parts)]


def merge_segments(
    parts: Sequence[ByteSource], origin: SegmentOrigin, path: str, manners: Manners | None = None
) -> SegmentSummary:
    """Writes all entries of these segments, which are `alike` and in the order of their ledgers, as one
    segment with their schemas to the new file `path`. On any error there is no file.

    `manners`: how they are read and written; None: at once. Raises HistoryError, OSError, and the errors of a
    source.
    """
    origin = replace(origin, schemas=SegmentReader(parts[0]).schemas)
    return write_segment(entries_of(parts, manners), origin, path, manners)
