"""What can be chosen when a segment store is opened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magnetar.bookie.segment import SEGMENT_BYTES_MAX


class Durability(Enum):
    """What an acknowledgement means."""

    FSYNC = "fsync"
    """The entries are on the device: they survive a power cut."""
    VOLATILE = "volatile"
    """The entries are in the page cache at best: for tests and throw-away brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Sizes and times of a segment store."""

    segment_bytes: int = 256 << 20
    """A segment is sealed when the next block does not fit; also what is set aside on the disk at once."""
    segment_blocks_max: int = 1 << 16
    """A segment is sealed at this many blocks: bounds the scan after a crash (about 2 us per block)."""
    idle_mark_ms: int = 100
    """After so long without a commit the log's end is marked: damage there is told from a torn tail."""

    rare_wait_ms: int = 2
    """Entries of ledgers that are rarely written wait so long for each other while there are very many of
    them; entries of others wait for nothing, and take them along. 0: they do not wait either."""
    rare_after_ms: int = 10
    """A ledger without a commit for so long is rarely written."""
    rare_per_s: int = 2_000
    """So many of them must be written a second: with fewer, a commit for each costs less than the wait."""

    spare_segments: int = 2
    """Files of dead segments that are kept for the next ones: they are faster to write. 0: none."""
    prewrite_bytes_per_s: int = 48 << 20
    """While nothing dead is there, files are filled with zeros for that, at most so fast, and only while
    entries come at less than half of it. 0: never. Durable stores only."""
    prewrite_bytes_min: int = 16 << 20
    """Such a file has as many bytes as were written since the store was opened, at least this."""

    rewrite_below: float = 0.5
    """A sealed segment is a candidate for rewriting when at most this share of its blocks lives."""
    rewrite_bytes_below: float = 0.5
    """It is rewritten when that leaves at most this share of its bytes."""
    rewrite_bytes_per_s: int = 16 << 20
    """Most that rewriting copies, bytes per second."""
    rewrite_interval_s: float = 30.0
    """Between two looks for segments to rewrite."""
    sort_after_reads: int = 0
    """A sealed segment is rewritten with each ledger's blocks beside each other after so many reads that
    waited for the device and found the ledger's next block elsewhere. 0: never."""

    def __post_init__(self) -> None:
        assert 1 << 14 <= self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.segment_blocks_max > 1
        assert self.rare_wait_ms >= 0
        assert self.spare_segments >= 0
        assert self.sort_after_reads >= 0
        assert self.prewrite_bytes_per_s >= 0
