"""How fast offloading may go beside live traffic. Pure: times in, pauses out.

After each piece of work offloading rests, so that it works for a share of the time only. The share shrinks
at once by half when clients were kept waiting, and grows slowly while they were not: as much is copied as
fits into what clients leave over.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.008
"""A pause that ends so much too late shows that the event loop or the processor is wanted by others."""
SHARE_MIN: Final = 0.02
"""Offloading never stops altogether: what keeps it waiting for ever would fill the disk."""
_GROWTH: Final = 0.02
"""What a share gains by a piece of work that disturbed nobody."""
_PAUSE_MAX_S: Final = 5.0


class Pace:
    """The share of time that offloading takes."""

    def __init__(self, *, share_max: float = 1.0, share_busy: float = 0.25, bytes_per_s_max: int = 0) -> None:
        """`share_max`: of the time, at most, while nobody else wants anything; `share_busy`: at most while
        clients publish or consume; `bytes_per_s_max`: 0 for no limit."""
        assert SHARE_MIN <= share_busy <= share_max <= 1
        self.share_max = share_max
        self.share_busy = share_busy
        self.bytes_per_s_max = bytes_per_s_max
        self.share = share_busy
        """In force now."""

    def pause_s(self, *, worked_s: float, size_bytes: int, late_s: float, busy: bool) -> float:
        """Seconds to rest after `size_bytes` took `worked_s`.

        `late_s`: by how much the last pause ended too late; `busy`: clients publish or consume.
        """
        most = self.share_busy if busy else self.share_max
        if late_s > LATE_S:
            self.share = max(SHARE_MIN, self.share / 2)
        else:
            self.share = min(most, self.share + _GROWTH)
        self.share = min(self.share, most)
        pause_s = worked_s * (1 - self.share) / self.share
        if self.bytes_per_s_max:
            pause_s = max(pause_s, size_bytes / self.bytes_per_s_max - worked_s)
        return min(pause_s, _PAUSE_MAX_S) if not self.bytes_per_s_max else pause_s
