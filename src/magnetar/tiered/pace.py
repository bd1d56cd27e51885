"""How fast offloading may go beside live traffic. Pure: times in, pauses out.

After each piece of work offloading rests, so that it works for a share of the time only. The share shrinks
at once by half when clients were kept waiting, and grows slowly while they were not: as much is copied as
fits into what clients leave over. Clients wait when the event loop is late, and when commits take longer than
they usually do: files that are written beside them keep the same disk busy.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.008
"""A pause that ends so much too late shows that the event loop or the processor is wanted by others."""
SLOW_FACTOR: Final = 2.0
SLOW_S: Final = 0.001
"""Commits are slow that take so many times as long as usual, and so much longer."""
_USUAL_GROWTH: Final = 0.01
"""By how much what is usual for commits may grow with each piece: a disk that has become slower for good is
believed after some hundred of them."""
_RECENT_WEIGHT: Final = 0.3
SHARE_MIN: Final = 0.02
"""Offloading never stops altogether: what keeps it waiting for ever would fill the disk."""
_GROWTH: Final = 0.02
"""Gain of a share by a piece of work that disturbed no client."""
_PAUSE_MAX_S: Final = 5.0


class Pace:
    """The share of time that offloading takes."""

    def __init__(self, *, share_max: float = 1.0, share_busy: float = 0.25, bytes_per_s_max: int = 0) -> None:
        """`share_max`: share of the time, at most, while the machine is idle; `share_busy`: at most while
        clients publish or consume; `bytes_per_s_max`: 0 for no limit."""
        assert SHARE_MIN <= share_busy <= share_max <= 1
        self.share_max = share_max
        self.share_busy = share_busy
        self.bytes_per_s_max = bytes_per_s_max
        self.share = share_busy
        """In force now."""
        self._usual_s: float | None = None
        """What commits take when nothing slows them down."""
        self._recent_s = 0.0
        """What they took lately, on the average over some pieces."""

    def pause_s(
        self,
        *,
        worked_s: float,
        size_bytes: int,
        late_s: float,
        busy: bool,
        commit_s: float | None = None,
    ) -> float:
        """Seconds to rest after `size_bytes` took `worked_s`.

        `late_s`: by how much the last pause ended too late; `busy`: clients publish or consume; `commit_s`:
        what commits took since the last call, on the average; None when there was none.
        """
        most = self.share_busy if busy else self.share_max
        if late_s > LATE_S or self._commits_slowly(commit_s):
            self.share = max(SHARE_MIN, self.share / 2)
        else:
            self.share = min(most, self.share + _GROWTH)
        self.share = min(self.share, most)
        pause_s = worked_s * (1 - self.share) / self.share
        if self.bytes_per_s_max:
            pause_s = max(pause_s, size_bytes / self.bytes_per_s_max - worked_s)
        return min(pause_s, _PAUSE_MAX_S) if not self.bytes_per_s_max else pause_s

    def _commits_slowly(self, commit_s: float | None) -> bool:
        """Both now and over the last pieces: a disk whose commits vary widely by themselves is not slow."""
        if commit_s is None:
            return False
        if self._usual_s is None:
            self._usual_s = self._recent_s = commit_s
        self._recent_s += _RECENT_WEIGHT * (commit_s - self._recent_s)
        usual_s = self._usual_s
        self._usual_s = min(self._recent_s, usual_s * (1 + _USUAL_GROWTH))
        least_s = min(commit_s, self._recent_s)
        return least_s > SLOW_FACTOR * usual_s and least_s - usual_s > SLOW_S
