"""Checks that a segment, read back, gives the entries of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.history.codecs import decompress
from magnetar.history.manners import AtOnce, Manners
from magnetar.history.reader import SegmentReader
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError
from magnetar.wire.payload import EntryError, checksum_matches, parse_metadata, split_entry


def verify_segment(reader: SegmentReader, runs: Iterable[EntryRun], manners: Manners | None = None) -> int:
    """Compares all entries of a segment with `runs`; returns their number.

    `manners`: how they are rebuilt; None: at once. Raises DamagedSegmentError for the first entry that
    differs, or when entries are missing or added.
    """
    compute = (AtOnce() if manners is None else manners).compute
    topic = reader.summary.topic
    ledgers = iter(reader.spans.ledgers)
    span = next(ledgers)
    entry, compared = span.first_entry, 0
    for run in runs:
        if entry > span.last_entry:
            span = next(ledgers, span)
            entry = span.first_entry
        at = 0
        while at < len(run.entries):
            if entry > span.last_entry or (run.ledger_id, run.first_entry + at) != (span.ledger_id, entry):
                raise DamagedSegmentError(f"the segment of {topic} does not hold {run!r}")
            # No more than is compared now: each call makes the bytes of its entries again.
            for part in compute(partial(reader.entries, span.ledger_id, entry, run.size_bytes)):
                count = min(len(part.entries), len(run.entries) - at)
                if count:
                    _compare(run.slice(at, at + count), part.slice(0, count), topic)
                at += count
                entry += count
                compared += count
    if entry != span.last_entry + 1 or next(ledgers, None) is not None:
        raise DamagedSegmentError(
            f"the segment of {topic} goes on after entry {entry - 1} of ledger {span.ledger_id}"
        )
    return compared


def _compare(stored: EntryRun, rebuilt: EntryRun, topic: str) -> None:
    if rebuilt.entries[0] == LEFT_OUT:
        # Such runs have nothing else, and of what is left out only the ids are kept.
        if stored.entries.count(LEFT_OUT) != len(stored.entries):
            raise DamagedSegmentError(f"the segment of {topic} leaves out some of {stored!r}")
        return
    counts = stored.counts or [1] * len(stored.entries)
    if (
        stored.base_index != rebuilt.base_index
        or stored.broker_time_ms != rebuilt.broker_time_ms
        or counts != (rebuilt.counts or [1] * len(stored.entries))
    ):
        raise DamagedSegmentError(f"the segment of {topic} has {rebuilt!r} instead of {stored!r}")
    for at, (before, after) in enumerate(zip(stored.entries, rebuilt.entries, strict=True)):
        if before != after and not is_same_message(before, after):
            raise DamagedSegmentError(
                f"the segment of {topic} has other bytes for entry"
                f" {stored.ledger_id}:{stored.first_entry + at}"
            )


def is_same_message(stored: bytes, rebuilt: bytes) -> bool:
    """Whether two unequal entries differ only in the compression of their payload."""
    try:
        before, after = split_entry(stored), split_entry(rebuilt)
        if before.metadata != after.metadata or (before.checksum is None) != (after.checksum is None):
            return False
        metadata = parse_metadata(before.metadata)
        if not metadata.compression or not checksum_matches(rebuilt):
            return False
    except EntryError:
        return False
    kind, size = metadata.compression, metadata.uncompressed_size
    plain = decompress(kind, bytes(before.payload), size)
    return plain is not None and plain == decompress(kind, bytes(after.payload), size)
