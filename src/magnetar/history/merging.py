"""Several segments become one, entry by entry: what a consumer gets of it is what it got of them."""

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


def alike(parts: Iterable[ByteSource]) -> list[int]:
    """How many of these segments, from the first one on, were written with the same schemas, then how many
    with the next ones, and so on.

    Fields of `value` are those of the newest version then. In one file with others they would lose some, or
    get some that they had not.
    """
    return [len(list(group)) for _, group in groupby(SegmentReader(part).schemas for part in parts)]


def merge_segments(
    parts: Sequence[ByteSource], origin: SegmentOrigin, path: str, manners: Manners | None = None
) -> SegmentSummary:
    """Writes one segment with all entries of these, which are `alike` and whose ledgers follow each other,
    to the new file `path`, with their schemas. On any error there is no file.

    `manners`: how they are read and written, at once if None. Raises HistoryError, OSError, and what a source
    raises.
    """
    origin = replace(origin, schemas=SegmentReader(parts[0]).schemas)
    return write_segment(entries_of(parts, manners), origin, path, manners)
