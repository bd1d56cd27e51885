"""Options of a segment store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magnetar.bookie.segment import SEGMENT_BYTES_MAX


class Durability(Enum):
    """What an acknowledgement guarantees."""

    FSYNC = "fsync"
    """The entries are on the device: they survive a power cut."""
    VOLATILE = "volatile"
    """The entries are in the page cache at best: for tests and throw-away brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Sizes and times of a segment store."""

    segment_bytes: int = 256 << 20
    """A segment is sealed when the next block does not fit; also the bytes allocated for a segment at
    once."""
    segment_blocks_max: int = 1 << 16
    """A segment is sealed at this many blocks: bounds the scan after a crash (about 2 us per block)."""
    idle_mark_ms: int = 100
    """Milliseconds without a commit after which the log's end is marked: then damage there differs from a
    torn tail."""

    rare_wait_ms: int = 2
    """Milliseconds that entries of rarely written ledgers wait for each other, while there are very many such
    ledgers. Entries of other ledgers do not wait, and take the waiting ones along. 0: no wait."""
    rare_after_ms: int = 10
    """Milliseconds without a commit after which a ledger counts as rarely written."""
    rare_per_s: int = 2_000
    """Rarely written ledgers per second from which on their entries wait: with fewer, single commits cost
    less than the wait."""

    gather_wait_us: int = 300
    """Microseconds between the end of a commit and the begin of the next, so that messages of a steady stream
    share commits. It is not done when it would cost throughput. 0: never."""
    gather_per_s: int = 1_500
    """Commits per second from which commits wait for further messages; fewer cost less than the wait."""

    spare_segments: int = 2
    """Files of dead segments kept for new segments, which are faster to write. 0: none."""
    prewrite_bytes_per_s: int = 48 << 20
    """While there is no dead segment, files are filled with zeros for that, at most at this rate, and only
    while entries come at less than half of it. 0: never. Durable stores only."""
    prewrite_bytes_min: int = 16 << 20
    """Bytes of such a file: as many as were written since the store was opened, at least this many."""

    rewrite_below: float = 0.5
    """A sealed segment is a candidate for rewriting when at most this share of its blocks is alive."""
    rewrite_bytes_below: float = 0.5
    """A candidate is rewritten when at most this share of its bytes remains."""
    rewrite_bytes_per_s: int = 16 << 20
    """Bytes per second that rewriting copies at most."""
    rewrite_interval_s: float = 30.0
    """Seconds between two searches for segments to rewrite."""
    sort_after_reads: int = 0
    """A sealed segment is rewritten with each ledger's blocks together after this many reads that waited for
    the device and found the ledger's next block elsewhere in the file. 0: never."""

    def __post_init__(self) -> None:
        assert 1 << 14 <= self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.segment_blocks_max > 1
        assert self.rare_wait_ms >= 0
        assert 0 <= self.gather_wait_us < 1_000
        assert self.spare_segments >= 0
        assert self.sort_after_reads >= 0
        assert self.prewrite_bytes_per_s >= 0
