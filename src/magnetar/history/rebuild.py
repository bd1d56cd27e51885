"""Rebuilds whole entries from rows, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.fields import Bools, Ints
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history.codecs import compress
from magnetar.history.columns import HAS_CHECKSUM
from magnetar.history.joining import Joining, Views, side_by_side
from magnetar.history.left_out import Gap
from magnetar.history.metadata import Rows, entry_metadata, ints, message_pieces, milliseconds, nulls
from magnetar.history.pieces import Pieces, byte_lengths
from magnetar.tiered.parquet.frames import count_part, head_part, runs_parts
from magnetar.wire.checksum import crc32c

_EMPTY = pa.scalar(b"", pa.binary())

_LARGE_BATCH: Final = 64
"""Messages per entry from which a Python step for each entry costs less than masks over all views."""


@dataclass(frozen=True, slots=True)
class RebuiltEntries:
    """Entries of one ledger in their order, in one buffer."""

    entry_ids: Ints
    """Ascending; what is missing between two is left out."""
    data: pa.Array
    """Binary, one element per entry."""
    counts: Ints
    base_indexes: Ints
    broker_times_ms: Ints

    def __len__(self) -> int:
        return len(self.data)

    def runs(self, ledger_id: LedgerId, start: int, stop: int, gaps: Sequence[Gap] = ()) -> list[EntryRun]:
        """The entries `start <= i < stop`, one run for each broker time, and one for each of the gaps between
        them."""
        entries = self.data.slice(start, stop - start).to_pylist()
        runs = [gap.run(gap.first_entry, gap.entries) for gap in gaps]
        for first, end in self._stretches(start, stop):
            counts = self.counts[first:end]
            runs.append(
                EntryRun(
                    ledger_id,
                    int(self.entry_ids[first]),
                    entries[first - start : end - start],
                    None if (counts == 1).all() else counts.tolist(),
                    int(self.base_indexes[first]),
                    int(self.broker_times_ms[first]),
                )
            )
        return sorted(runs, key=lambda run: run.first_entry) if gaps else runs

    def frame_parts(
        self, ledger_id: LedgerId, start: int, stop: int, gaps: Sequence[Gap] = ()
    ) -> list[bytes | memoryview]:
        """The parts of the body of a RUNS frame with these runs; no entry is copied."""
        offsets = np.frombuffer(self.data.buffers()[1], np.int32)[
            self.data.offset : self.data.offset + len(self) + 1
        ]
        data = memoryview(self.data.buffers()[2] or b"")
        spans = self._stretches(start, stop)
        parts: list[bytes | memoryview] = [count_part(len(spans) + len(gaps))]
        before = 0
        for first, end in spans:
            while before < len(gaps) and gaps[before].first_entry < self.entry_ids[first]:
                # Without the number of runs.
                parts += runs_parts([gaps[before].run(gaps[before].first_entry, gaps[before].entries)])[1:]
                before += 1
            counts = self.counts[first:end]
            has_counts = not (counts == 1).all()
            parts.append(
                head_part(
                    ledger_id,
                    int(self.entry_ids[first]),
                    int(self.base_indexes[first]),
                    int(self.broker_times_ms[first]),
                    end - first,
                    has_counts=has_counts,
                )
            )
            parts.append(np.diff(offsets[first : end + 1]).astype(np.uint32).tobytes())
            if has_counts:
                parts.append(counts.astype(np.uint32).tobytes())
            parts.append(data[offsets[first] : offsets[end]])
        return parts

    def _stretches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Start and end of each group of consecutive entries with the same broker time."""
        ends = (np.diff(self.broker_times_ms[start:stop]) != 0) | (np.diff(self.entry_ids[start:stop]) != 1)
        changes = np.flatnonzero(ends) + 1 + start
        return list(pairwise([start, *changes.tolist(), stop]))


def rebuild(rows: Rows) -> RebuiltEntries:
    """The entries of these rows. The rows must hold whole entries and have the `REBUILD_COLUMNS`."""
    batch_index = ints(rows.column("batch_index"))
    firsts = np.flatnonzero(batch_index <= 0)
    payloads = rows.column("payload")
    if payloads.null_count:
        payloads = pc.fill_null(payloads, _EMPTY)
    messages = _messages(rows, batch_index >= 0, payloads)
    lasts = np.append(firsts[1:], rows.count) - 1
    ends = np.cumsum(messages.lengths)
    plain_bytes = np.diff(ends[lasts], prepend=0)
    first_rows = rows if len(firsts) == rows.count else rows.take(firsts)
    last_ids = ints(rows.column("sequence_id"))[lasts]
    metadata = entry_metadata(first_rows, last_ids, plain_bytes)
    kept = first_rows.column("entry_metadata")
    if kept.null_count < len(kept):
        metadata = pc.coalesce(kept, metadata)
    data = _assemble(first_rows, metadata, messages, firsts)
    return RebuiltEntries(
        entry_ids=ints(first_rows.column("entry_id")),
        data=data,
        counts=ints(first_rows.column("batch_size")),
        base_indexes=ints(first_rows.column("entry_index")),
        broker_times_ms=milliseconds(first_rows.column("broker_time")),
    )


def _messages(rows: Rows, in_batch: Bools, payloads: pa.Array) -> Pieces:
    """Payloads; those in batches follow their size and metadata."""
    sizes = byte_lengths(payloads)
    pieces = Pieces(rows.count)
    if in_batch.any():
        built = message_pieces(rows, sizes)
        kept = rows.column("message_metadata")
        if in_batch.all() and kept.null_count == len(kept):
            pieces.u32(built.lengths)
            pieces.append(built)
        else:
            metadata = built.join()
            if kept.null_count < len(kept):
                metadata = pc.coalesce(kept, metadata)
            if not in_batch.all():
                metadata = pc.if_else(pa.array(in_batch), metadata, _EMPTY)
            pieces.u32(byte_lengths(metadata), in_batch)
            pieces.plain(metadata)
    pieces.plain(payloads, sizes)
    return pieces


def _assemble(rows: Rows, metadata: pa.Array, messages: Pieces, firsts: Ints) -> pa.Array:
    """Checksum, size of the metadata, metadata and payload of each entry; raw entries unchanged."""
    raw = rows.column("raw_entry")
    is_opened = nulls(raw)
    checksums = rows.column("entry_checksum")
    # What has no stored checksum, but had one, is compressed again; its metadata says how. Pieces are as
    # they were: they have their checksum, or none at all.
    compression = ints(rows.column("compression"))
    is_piece = ints(rows.column("chunk_count")) > 1
    again = is_opened & (compression != 0) & ~is_piece
    has_checksum = (ints(rows.column("entry_fields")) & HAS_CHECKSUM != 0) & is_opened
    sums = ints(checksums)
    bodies = None
    if again.any() or not is_opened.all():
        joining = Joining()
        views = messages.views(joining)
        bodies = joining.join(side_by_side(views), len(views) * firsts)
        if again.any():
            bodies, sums = _compressed(again, has_checksum, compression, metadata, bodies, sums)
        if not is_opened.all():
            bodies = pc.coalesce(raw, bodies)
            metadata = pc.if_else(pa.array(is_opened), metadata, _EMPTY)
    heads = Pieces(rows.count)
    heads.fixed(b"\x0e\x01", has_checksum)
    heads.u32(sums, has_checksum)
    heads.u32(byte_lengths(metadata), is_opened)
    heads.plain(metadata)
    if bodies is not None:
        heads.plain(bodies)
        return heads.join()
    return _joined(heads, messages, firsts)


def _joined(heads: Pieces, messages: Pieces, firsts: Ints) -> pa.Array:
    """Each head with the messages from its index in `firsts` on, in one copy."""
    joining = Joining()
    head_views, message_views = heads.views(joining), messages.views(joining)
    in_head, in_message = len(head_views), len(message_views)
    count = len(messages.lengths)
    entries = np.arange(len(firsts))
    begins = in_message * firsts + in_head * entries
    if len(firsts) == count:
        return joining.join(side_by_side([*head_views, *message_views]), every=in_head + in_message)
    views: Views = np.empty((in_head * len(firsts) + in_message * count, 4), np.int32)
    if count >= _LARGE_BATCH * len(firsts):
        for at, column in enumerate(head_views):
            views[begins + at] = column
        starts, ends = begins + in_head, np.append(begins[1:], len(views))
        edges = np.append(firsts, count).tolist()
        for start, end, (first, stop) in zip(starts.tolist(), ends.tolist(), pairwise(edges), strict=True):
            block = views[start:end].reshape(-1, in_message, 4)
            for at, column in enumerate(message_views):
                block[:, at] = column[first:stop]
        return joining.join(views, begins)
    is_head = np.zeros(len(views), np.bool_)
    is_head[(begins[:, None] + np.arange(in_head)).reshape(-1)] = True
    views[is_head] = side_by_side(head_views)
    views[~is_head] = side_by_side(message_views)
    return joining.join(views, begins)


def _compressed(
    again: Bools, has_checksum: Bools, kinds: Ints, metadata: pa.Array, bodies: pa.Array, sums: Ints
) -> tuple[pa.Array, Ints]:
    """The payloads, compressed where they were compressed originally, with the checksums of the compressed
    ones."""
    payloads: list[bytes] = bodies.to_pylist()
    sums = sums.copy()
    for row in np.flatnonzero(again).tolist():
        payload = payloads[row] = compress(int(kinds[row]), payloads[row])
        if has_checksum[row]:
            head = metadata[row].as_py()
            sums[row] = crc32c(b"".join((len(head).to_bytes(4, "big"), head, payload)))
    return pa.array(payloads, pa.binary()), sums
