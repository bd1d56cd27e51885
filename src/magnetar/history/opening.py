"""Opens entries: decides which can be opened, decompresses payloads, and locates the messages of batches.

An entry is opened when its metadata can be read, it is not encrypted, and its payload can be decompressed to
the size that it claims. The messages of a batch must also fill the payload exactly, and be as many as the log
counted. Every other entry becomes one row with its bytes unchanged. A chunk of a large message becomes one
row; it stays compressed, because the message was compressed before it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from magnetar.arrow import metadata_fields as number
from magnetar.arrow.batch_walk import walk_batches
from magnetar.arrow.fields import PADDING, Bools, Bytes, Fields, Ints
from magnetar.history.codecs import decompress
from magnetar.history.vectors import EntryVector, read_fields

_INT32_MAX = (1 << 31) - 1

SINGLE_FIELDS = frozenset(
    (
        number.S_PROPERTIES,
        number.S_KEY,
        number.S_PAYLOAD_SIZE,
        number.S_COMPACTED,
        number.S_EVENT_TIME,
        number.S_KEY_IS_BASE64,
        number.S_ORDERING_KEY,
        number.S_SEQUENCE_ID,
        number.S_NULL_VALUE,
        number.S_NULL_KEY,
    )
)


@dataclass(frozen=True, slots=True)
class OpenedBatches:
    """The messages of all opened batches."""

    entry: Ints
    """For each message the index of its entry in the vector."""
    batch_index: Ints
    buffer: bytes
    array: Bytes
    metadata_start: Ints
    payload_start: Ints
    payload_end: Ints
    singles: Fields


@dataclass(frozen=True, slots=True)
class OpenedEntries:
    """The opened entries of a vector."""

    vector: EntryVector
    is_raw: Bools
    """Entries that are stored unchanged."""
    is_piece: Bools
    """Entries that are chunks of large messages."""
    buffer: bytes
    array: Bytes
    """Plain payloads, of compressed and uncompressed entries alike."""
    plain_start: Ints
    plain_end: Ints
    batches: OpenedBatches | None

    @property
    def is_single(self) -> Bools:
        """Entries of one row: all except opened batches."""
        is_single = np.ones(len(self.vector), np.bool_)
        if self.batches is not None:
            is_single[self.batches.entry] = False
        return is_single


def open_entries(vector: EntryVector) -> OpenedEntries:
    """Opens all entries that can be opened."""
    fields = vector.fields
    is_raw = ~vector.is_readable
    is_raw[fields.spans(number.ENCRYPTION_KEYS).rows] = True
    is_batch = fields.present(number.BATCH_COUNT)
    counted = np.where(is_batch, fields.numbers(number.BATCH_COUNT), 1)
    is_raw |= (counted != vector.counts) | (counted < 1)
    pieces = fields.numbers(number.CHUNK_COUNT)
    is_piece = pieces > 1
    is_raw |= is_piece & (is_batch | (pieces > _INT32_MAX))
    kinds = np.where(is_raw | is_piece, 0, fields.numbers(number.COMPRESSION))
    if kinds.any():
        buffer, starts, ends = _decompress(vector, kinds, is_raw)
        array = np.frombuffer(buffer, np.uint8)
    else:
        buffer, array, starts, ends = vector.buffer, vector.array, vector.payload, vector.ends
    # Each message has at least four bytes: a higher count is false and would only cost time.
    is_raw |= is_batch & (counted > (ends - starts) // 4)
    chosen = np.flatnonzero(is_batch & ~is_raw)
    batches = _open_batches(chosen, vector.counts, buffer, array, starts, ends, is_raw)
    return OpenedEntries(vector, is_raw, is_piece & ~is_raw, buffer, array, starts, ends, batches)


def _decompress(vector: EntryVector, kinds: Ints, is_raw: Bools) -> tuple[bytes, Ints, Ints]:
    """Plain payloads of all entries in one buffer; marks those that cannot be decompressed as raw."""
    sizes = vector.fields.numbers(number.PLAIN_SIZE).tolist()
    buffer = vector.buffer
    parts: list[bytes] = []
    for row, (kind, start, end, size) in enumerate(
        zip(kinds.tolist(), vector.payload.tolist(), vector.ends.tolist(), sizes, strict=True)
    ):
        part: bytes | None = b""
        if not is_raw[row]:
            part = buffer[start:end]
            if kind:
                part = decompress(kind, part, size)
                if part is None:
                    is_raw[row] = True
        parts.append(part or b"")
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(lengths)
    return b"".join((*parts, PADDING)), ends - lengths, ends


def _open_batches(
    chosen: Ints, counts: Ints, buffer: bytes, array: Bytes, starts: Ints, ends: Ints, is_raw: Bools
) -> OpenedBatches | None:
    """The messages of these batches; marks those that are malformed as raw."""
    if not len(chosen):
        return None
    sizes = counts[chosen]
    spans, is_whole = walk_batches(buffer, array, starts[chosen], ends[chosen], sizes)
    is_whole &= spans.end[np.cumsum(sizes) - 1] == ends[chosen]
    if not is_whole.all():
        is_raw[chosen[~is_whole]] = True
        return _open_batches(chosen[is_whole], counts, buffer, array, starts, ends, is_raw)
    metadata, payload, end = spans
    entry = np.repeat(chosen, sizes)
    singles, is_sound = read_fields(array, metadata, payload, SINGLE_FIELDS)
    if not is_sound.all():
        is_raw[entry[~is_sound]] = True
        return _open_batches(chosen[~is_raw[chosen]], counts, buffer, array, starts, ends, is_raw)
    firsts = np.cumsum(sizes) - sizes
    batch_index = np.arange(len(entry), dtype=np.int64) - np.repeat(firsts, sizes)
    return OpenedBatches(entry, batch_index, buffer, array, metadata, payload, end, singles)
