"""Entries out of rows: the way back, of whole entries in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.fields import Bools, Ints
from magnetar.base.entries import EntryRun
from magnetar.history.codecs import compress
from magnetar.history.columns import HAS_CHECKSUM
from magnetar.history.metadata import Rows, entry_metadata, ints, message_pieces, milliseconds, nulls
from magnetar.history.pieces import Pieces, byte_lengths
from magnetar.wire.checksum import crc32c

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class RebuiltEntries:
    """Consecutive entries of one ledger, in one buffer."""

    first_entry: int
    data: pa.Array
    """Binary, one element per entry."""
    counts: Ints
    base_indexes: Ints
    broker_times_ms: Ints

    def __len__(self) -> int:
        return len(self.data)

    def runs(self, ledger_id: int, start: int, stop: int) -> list[EntryRun]:
        """The entries `start <= i < stop`, those of one broker time as one run each."""
        entries = self.data.slice(start, stop - start).to_pylist()
        times = self.broker_times_ms[start:stop]
        edges = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), stop - start]
        runs = []
        for first, end in pairwise(edges):
            counts = self.counts[start + first : start + end]
            runs.append(
                EntryRun(
                    ledger_id,
                    self.first_entry + start + first,
                    entries[first:end],
                    None if (counts == 1).all() else counts.tolist(),
                    int(self.base_indexes[start + first]),
                    int(times[first]),
                )
            )
        return runs


def rebuild(rows: Rows) -> RebuiltEntries:
    """The entries of these rows, which begin and end with whole entries. Needs `REBUILD_COLUMNS`."""
    batch_index = ints(rows.column("batch_index"))
    firsts = np.flatnonzero(batch_index <= 0)
    payloads = rows.column("payload")
    if payloads.null_count:
        payloads = pc.fill_null(payloads, _EMPTY)
    in_batch = batch_index >= 0
    messages = _messages(rows, in_batch, payloads) if in_batch.any() else payloads
    bodies = _grouped(messages, firsts)
    plain_bytes = byte_lengths(bodies)
    first_rows = rows if len(firsts) == rows.count else rows.take(firsts)
    lasts = np.append(firsts[1:], rows.count) - 1
    last_ids = ints(rows.column("sequence_id"))[lasts]
    metadata = entry_metadata(first_rows, last_ids, plain_bytes)
    kept = first_rows.column("entry_metadata")
    if kept.null_count < len(kept):
        metadata = pc.coalesce(kept, metadata)
    data = _assemble(first_rows, metadata, bodies)
    return RebuiltEntries(
        first_entry=rows.column("entry_id")[0].as_py() if rows.count else 0,
        data=data,
        counts=ints(first_rows.column("batch_size")),
        base_indexes=ints(first_rows.column("entry_index")),
        broker_times_ms=milliseconds(first_rows.column("broker_time")),
    )


def _messages(rows: Rows, in_batch: Bools, payloads: pa.Array) -> pa.Array:
    """Payloads, those in batches with their size and metadata in front."""
    built = message_pieces(rows, byte_lengths(payloads))
    kept = rows.column("message_metadata")
    if kept.null_count < len(kept):
        metadata = pc.coalesce(kept, built.join())
        sizes = byte_lengths(metadata)
    else:
        metadata, sizes = built.join(), built.lengths
    pieces = Pieces(rows.count)
    pieces.u32(sizes, in_batch)
    if not in_batch.all():
        metadata = pc.if_else(pa.array(in_batch), metadata, _EMPTY)
    pieces.plain(metadata)
    pieces.plain(payloads)
    return pieces.join()


def _grouped(messages: pa.Array, firsts: Ints) -> pa.Array:
    """Messages one after the other, as one element per entry. No copy."""
    if len(firsts) == len(messages):
        return messages
    if messages.offset:
        messages = pa.concat_arrays([messages])
    offsets = np.frombuffer(messages.buffers()[1], np.int32)[
        messages.offset : messages.offset + len(messages) + 1
    ]
    places = np.append(offsets[firsts], offsets[-1]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(firsts), [None, pa.py_buffer(places), messages.buffers()[2]]
    )


def _assemble(rows: Rows, metadata: pa.Array, bodies: pa.Array) -> pa.Array:
    """Checksum, size of the metadata, metadata and payload of each entry; raw ones as they are."""
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
    if again.any():
        bodies, sums = _compressed(again, has_checksum, compression, metadata, bodies, sums)
    pieces = Pieces(rows.count)
    pieces.fixed(b"\x0e\x01", has_checksum)
    pieces.u32(sums, has_checksum)
    pieces.u32(byte_lengths(metadata), is_opened)
    if not is_opened.all():
        metadata = pc.if_else(pa.array(is_opened), metadata, _EMPTY)
        bodies = pc.coalesce(raw, bodies)
    pieces.plain(metadata)
    pieces.plain(bodies)
    return pieces.join()


def _compressed(
    again: Bools, has_checksum: Bools, kinds: Ints, metadata: pa.Array, bodies: pa.Array, sums: Ints
) -> tuple[pa.Array, Ints]:
    """Payloads with those compressed that were, and the checksums of these."""
    payloads: list[bytes] = bodies.to_pylist()
    sums = sums.copy()
    for row in np.flatnonzero(again).tolist():
        payload = payloads[row] = compress(int(kinds[row]), payloads[row])
        if has_checksum[row]:
            head = metadata[row].as_py()
            sums[row] = crc32c(b"".join((len(head).to_bytes(4, "big"), head, payload)))
    return pa.array(payloads, pa.binary()), sums
