"""Puts entries into one buffer and locates their parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from magnetar.arrow import metadata_fields as number
from magnetar.arrow.fields import PADDING, Bools, Bytes, Fields, Ints, big_endian_u32, parse_fields
from magnetar.base.entries import EntryRun
from magnetar.client.errors import PayloadError

ENTRY_FIELDS = frozenset(
    (
        number.PRODUCER_NAME,
        number.SEQUENCE_ID,
        number.PUBLISH_TIME,
        number.PROPERTIES,
        number.REPLICATED_FROM,
        number.KEY,
        number.COMPRESSION,
        number.PLAIN_SIZE,
        number.BATCH_COUNT,
        number.EVENT_TIME,
        number.ENCRYPTION_KEYS,
        number.SCHEMA_VERSION,
        number.KEY_IS_BASE64,
        number.ORDERING_KEY,
        number.DELIVER_AT,
        number.MARKER,
        number.TXN_LEAST,
        number.TXN_MOST,
        number.HIGHEST_SEQUENCE_ID,
        number.NULL_VALUE,
        number.UUID,
        number.CHUNK_COUNT,
        number.CHUNKS_TOTAL_BYTES,
        number.CHUNK_ID,
        number.NULL_KEY,
    )
)
"""Fields of MessageMetadata that have columns, or decide how an entry is stored."""


@dataclass(frozen=True, slots=True)
class EntryVector:
    """Consecutive entries of a log, with their metadata read."""

    ledger_ids: Ints
    entries: Sequence[bytes]
    entry_ids: Ints
    counts: Ints
    """Messages of each entry, as the log counts them."""
    base_indexes: Ints
    broker_times_ms: Ints
    buffer: bytes
    """All entries, followed by PADDING."""
    array: Bytes
    starts: Ints
    has_checksum: Bools
    metadata: Ints
    """Offset of the metadata; of the payload when there is no metadata."""
    payload: Ints
    ends: Ints
    is_readable: Bools
    """Whether there is metadata at all."""
    fields: Fields

    def __len__(self) -> int:
        return len(self.entries)


def read_vector(runs: Sequence[EntryRun]) -> EntryVector:
    """Reads the metadata of these entries, at least one; bytes that are not an entry are marked as
    unreadable."""
    entries = [entry for run in runs for entry in run.entries]
    count = len(entries)
    lengths = np.array([len(run.entries) for run in runs], np.int64)
    counts = np.concatenate(
        [np.ones(len(run.entries), np.int64) if run.counts is None else np.array(run.counts) for run in runs]
    ).astype(np.int64)
    # Within a run indexes go on by the counts; each run says where it begins.
    before = np.cumsum(counts) - counts
    firsts = np.cumsum(lengths) - lengths
    bases = np.array([run.base_index for run in runs], np.int64) - before[firsts]
    buffer = b"".join((*entries, PADDING))
    array = np.frombuffer(buffer, np.uint8)
    sizes = np.fromiter(map(len, entries), np.int64, count)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    # Places are read before they are known to be inside of the entry; PADDING keeps them in the buffer.
    has_checksum = (sizes >= 10) & (array[starts] == 0x0E) & (array[starts + 1] == 0x01)
    metadata = starts + np.where(has_checksum, 10, 4)
    is_readable = metadata <= ends
    metadata = np.minimum(metadata, ends)
    payload = metadata + np.where(is_readable, big_endian_u32(array, np.maximum(metadata - 4, 0)), 0)
    is_readable &= payload <= ends
    payload = np.where(is_readable, payload, metadata)
    fields, is_sound = read_fields(array, metadata, payload, ENTRY_FIELDS)
    return EntryVector(
        ledger_ids=np.repeat(np.array([run.ledger_id for run in runs], np.int64), lengths),
        entries=entries,
        entry_ids=np.repeat(np.array([run.first_entry for run in runs], np.int64) - firsts, lengths)
        + np.arange(count),
        counts=counts,
        base_indexes=np.repeat(bases, lengths) + before,
        broker_times_ms=np.repeat(np.array([run.broker_time_ms for run in runs], np.int64), lengths),
        buffer=buffer,
        array=array,
        starts=starts,
        has_checksum=has_checksum,
        metadata=metadata,
        payload=payload,
        ends=ends,
        is_readable=is_readable & is_sound & (payload > metadata),
        fields=fields,
    )


def read_fields(array: Bytes, starts: Ints, ends: Ints, wanted: Collection[int]) -> tuple[Fields, Bools]:
    """Like `parse_fields`, but malformed messages are marked with False and have no fields."""
    is_sound = np.ones(len(starts), np.bool_)
    try:
        return parse_fields(array, starts, ends, wanted), is_sound
    except PayloadError:  # found out below which messages are malformed
        pass
    # Rare: one message spoils the call, so halves are tried until the bad ones stand alone.
    stack = [(0, len(starts))]
    while stack:
        first, stop = stack.pop()
        try:
            parse_fields(array, starts[first:stop], ends[first:stop], ())
        except PayloadError:
            if stop - first == 1:
                is_sound[first] = False
            else:
                middle = (first + stop) // 2
                stack += [(first, middle), (middle, stop)]
    return parse_fields(array, starts, np.where(is_sound, ends, starts), wanted), is_sound
