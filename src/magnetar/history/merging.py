"""Several segments become one, entry by entry: what a consumer gets of it is what it got of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.history.manners import AtOnce, Manners
from magnetar.history.reader import SegmentReader
from magnetar.history.writer import write_segment
from magnetar.tiered.parquet.api import ByteSource, SegmentOrigin, SegmentSummary

_BYTES: Final = 1 << 20
"""Of entries taken at a time."""


def entries_of(parts: Iterable[ByteSource], manners: Manners | None = None) -> Iterator[EntryRun]:
    """All entries of these segments, in order; one segment is open at a time.

    `manners`: how they are read, at once if None. Raises DamagedSegmentError, and what a source raises.
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


def merge_segments(
    parts: Iterable[ByteSource], origin: SegmentOrigin, path: str, manners: Manners | None = None
) -> SegmentSummary:
    """Writes one segment with all entries of these, whose ledgers follow each other, to the new file `path`.
    On any error there is no file.

    `manners`: how they are read and written, at once if None. Raises HistoryError, OSError, and what a source
    raises.
    """
    return write_segment(entries_of(parts, manners), origin, path, manners)
