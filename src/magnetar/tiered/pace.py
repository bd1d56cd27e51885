"""Limits the speed of offloading beside live traffic. Pure: times in, pauses out.

Offloading pauses after each piece of work, so that it works for a share of the time only. The share is halved
when clients were delayed, and grows slowly while they are not, so offloading uses the capacity that clients
leave. Clients are delayed when the event loop is late, and when commits take longer than usual because the
files written by offloading keep the same disk busy.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.008
"""Seconds. A pause that ends this much too late shows that the event loop or the processor is busy."""
SLOW_FACTOR: Final = 2.0
SLOW_S: Final = 0.001
"""Commits count as slow when they take SLOW_FACTOR times as long as usual and SLOW_S seconds longer."""
_USUAL_GROWTH: Final = 0.01
"""Share by which the usual duration of commits may grow with each piece. A disk that stays slower counts as
normal after some hundred pieces."""
_RECENT_WEIGHT: Final = 0.3
SHARE_MIN: Final = 0.02
"""Smallest share. Offloading never stops completely, because the disk would fill up."""
_GROWTH: Final = 0.02
"""Growth of the share after a piece of work that delayed no client."""
_PAUSE_MAX_S: Final = 5.0


class Pace:
    """The share of time that offloading takes."""

    def __init__(self, *, share_max: float = 1.0, share_busy: float = 0.25, bytes_per_s_max: int = 0) -> None:
        """`share_max`: largest share of the time, 0 to 1, while no client is active. `share_busy`: largest
        share while clients publish or consume. `bytes_per_s_max`: largest speed; 0 for no limit."""
        assert SHARE_MIN <= share_busy <= share_max <= 1
        self.share_max = share_max
        self.share_busy = share_busy
        self.bytes_per_s_max = bytes_per_s_max
        self.share = share_busy
        """The present share, 0 to 1."""
        self._usual_s: float | None = None
        """Usual duration of commits, in seconds."""
        self._recent_s = 0.0
        """Average duration of commits during the last pieces, in seconds."""

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

        `late_s`: seconds by which the last pause ended too late. `busy`: clients publish or consume.
        `commit_s`: average duration of commits since the last call; None when there was none.
        """
        most = self.share_busy if busy else self.share_max
        if late_s > LATE_S or self._note_commit(commit_s):
            self.share = max(SHARE_MIN, self.share / 2)
        else:
            self.share = min(most, self.share + _GROWTH)
        self.share = min(self.share, most)
        pause_s = worked_s * (1 - self.share) / self.share
        if self.bytes_per_s_max:
            pause_s = max(pause_s, size_bytes / self.bytes_per_s_max - worked_s)
        return min(pause_s, _PAUSE_MAX_S) if not self.bytes_per_s_max else pause_s

    def _note_commit(self, commit_s: float | None) -> bool:
        """Notes how long a commit took; returns whether commits are slow both now and on average.

        A disk whose commits merely vary is not slow.
        """
        if commit_s is None:
            return False
        if self._usual_s is None:
            self._usual_s = self._recent_s = commit_s
        self._recent_s += _RECENT_WEIGHT * (commit_s - self._recent_s)
        usual_s = self._usual_s
        self._usual_s = min(self._recent_s, usual_s * (1 + _USUAL_GROWTH))
        least_s = min(commit_s, self._recent_s)
        return least_s > SLOW_FACTOR * usual_s and least_s - usual_s > SLOW_S
