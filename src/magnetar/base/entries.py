"""Entry runs: how stored entries travel between bookie, log, dispatcher and connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar.base.ids import LedgerId, Position

LEFT_OUT: Final = bytes.fromhex("00000009 0a00 1000 1800 a00116")
"""What copies of ledgers have in place of an entry that readers never get: metadata of a marker without a
producer, and no payload. It keeps the ids of the entries around it."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999. Where the time of an entry is its producer's, it can claim 64 bits, which neither
the value of a log nor a date holds."""


class EntryRun:
    """Consecutive entries of one ledger, with what the broker knows about them without opening them.

    An entry is what a producer sent after the command of a SEND frame, byte for byte:
    `0x0e01 | crc32c u32 | metadataSize u32 | MessageMetadata | payload` (the first six bytes are
    absent when the producer sent no checksum). A run must not be changed once others have it.
    """

    __slots__ = ("base_index", "broker_time_ms", "counts", "entries", "first_entry", "ledger_id")

    ledger_id: LedgerId
    """Ledger that holds the entries."""
    first_entry: int
    """Entry id of `entries[0]`; `entries[i]` is entry `first_entry + i`."""
    entries: list[bytes]
    """The stored bytes; never empty."""
    counts: list[int] | None
    """Messages in each entry (a batch counts its messages); None when each entry is one message."""
    base_index: int
    """Index (PIP-70) of the first message of the first entry: messages before it in the whole log."""
    broker_time_ms: int
    """Broker's clock, Unix milliseconds, when the run was appended (PIP-70)."""

    def __init__(
        self,
        ledger_id: LedgerId,
        first_entry: int,
        entries: list[bytes],
        counts: list[int] | None,
        base_index: int,
        broker_time_ms: int,
    ) -> None:
        self.ledger_id = ledger_id
        self.first_entry = first_entry
        self.entries = entries
        self.counts = counts
        self.base_index = base_index
        self.broker_time_ms = broker_time_ms

    def __repr__(self) -> str:
        return (
            f"EntryRun({self.ledger_id}:{self.first_entry}..{self.last_entry}, "
            f"index={self.base_index}, messages={self.message_count})"
        )

    @property
    def last_entry(self) -> int:
        """Entry id of the last entry."""
        return self.first_entry + len(self.entries) - 1

    @property
    def message_count(self) -> int:
        """Messages in all entries."""
        return len(self.entries) if self.counts is None else sum(self.counts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(map(len, self.entries))

    def count_of(self, offset: int) -> int:
        """Messages in `entries[offset]`."""
        return 1 if self.counts is None else self.counts[offset]

    def slice(self, start: int, stop: int) -> EntryRun:
        """The entries `start <= i < stop` as a run of their own, sharing the bytes. `start < stop`."""
        assert 0 <= start < stop <= len(self.entries)
        if start == 0 and stop == len(self.entries):
            return self
        counts = self.counts
        skipped = start if counts is None else sum(counts[:start])
        return EntryRun(
            self.ledger_id,
            self.first_entry + start,
            self.entries[start:stop],
            None if counts is None else counts[start:stop],
            self.base_index + skipped,
            self.broker_time_ms,
        )


def cut(
    runs: Iterator[tuple[EntryRun, int]], start: Position, bytes_max: int, entries_max: int
) -> list[EntryRun]:
    """Cuts runs, given with their bytes, to begin at `start` and to fit `bytes_max` and `entries_max`; keeps
    at least one entry if there is any."""
    out: list[EntryRun] = []
    for run, size_bytes in runs:
        entries = run.entries
        offset = max(0, start.entry_id - run.first_entry) if run.ledger_id == start.ledger_id else 0
        count = len(entries) - offset
        if not offset and size_bytes <= bytes_max and count <= entries_max:
            out.append(run)
            bytes_max -= size_bytes
            entries_max -= count
        else:
            stop = offset
            while stop < len(entries) and entries_max > 0:
                size = len(entries[stop])
                if size > bytes_max and (out or stop > offset):
                    break
                bytes_max -= size
                entries_max -= 1
                stop += 1
            if stop > offset:
                out.append(run.slice(offset, stop))
            if stop < len(entries):
                break
        if bytes_max <= 0 or entries_max <= 0:
            break
    return out
