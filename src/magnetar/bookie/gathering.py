"""When a commit waits a moment for more entries although some wait already (pure).

A steady stream of a few thousand messages a second finds the disk busy about as long as it takes for the next
message to come: nearly each becomes a commit of its own, which costs several times what the message does. A
wait of a fraction of a millisecond between two commits lets a handful share one. But a producer with a
bounded number of messages in flight, which sends the next one after a receipt, would only wait longer for it.

What comes does not say which of the two it is. So it is tried: while most commits end with entries waiting,
and there are many a second, commits wait for WINDOW_S. When as many bytes become durable as before, they go
on waiting, and a window without waiting every CHECK_WINDOWS shows whether that is still so. Else it is not
tried again for a while, and longer each time. Where a commit ends and nothing waits, the next entry never
waits: one sender with one message under way is not even tried.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

WINDOW_S: Final = 0.1
"""Time over which commits and bytes are counted."""
CHECK_WINDOWS: Final = 20
"""Windows with waiting until one without it."""
KEPT_SHARE: Final = 0.9
"""Share of the bytes per second without waiting: with less, waiting is given up."""
REFUSED_S_MIN: Final = 1.0
REFUSED_S_MAX: Final = 32.0
"""For how long it is not tried after it was given up: at first, and at most."""


class GatheringPhase(Enum):
    """What the present window is."""

    OFF = "off"
    """Nothing waits."""
    TRIAL = "trial"
    """The first window with waiting."""
    ON = "on"
    """Waiting is known to cost no throughput."""
    CHECK = "check"
    """A window without waiting, to compare."""


class Gathering:
    """Whether commits wait."""

    __slots__ = (
        "_bytes",
        "_commits",
        "_followed",
        "_other_rate",
        "_per_s",
        "_refused_s",
        "_refused_until_s",
        "_since_s",
        "_windows",
        "phase",
    )

    def __init__(self, per_s: float) -> None:
        """`per_s`: commits a second below which nothing waits; infinity: never."""
        self._per_s = per_s
        self.phase = GatheringPhase.OFF
        self._since_s = -math.inf
        self._refused_until_s = -math.inf
        self._refused_s = REFUSED_S_MIN
        self._other_rate = 0.0
        """Bytes a second of the window to compare with."""
        self._windows = 0
        self._count_anew()

    def _count_anew(self) -> None:
        self._commits = self._followed = self._bytes = 0

    @property
    def waits(self) -> bool:
        """Whether a commit that ends with entries waiting is followed by a moment of waiting."""
        return self.phase is GatheringPhase.TRIAL or self.phase is GatheringPhase.ON

    def committed(self, size: int, now_s: float, *, followed: bool) -> None:
        """A group of `size` bytes is durable. `followed`: entries wait for the next one."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= WINDOW_S:
            if elapsed_s < 2 * WINDOW_S:
                self._window_ended(elapsed_s, now_s)
            else:
                # Nothing came for a while: what was counted before says nothing.
                self.phase = GatheringPhase.OFF
            self._count_anew()
            self._since_s = now_s
        self._commits += 1
        self._followed += followed
        self._bytes += size

    def _window_ended(self, elapsed_s: float, now_s: float) -> None:
        rate = self._bytes / elapsed_s
        mostly_followed = 2 * self._followed >= self._commits
        worth_it = mostly_followed and self._commits >= self._per_s * elapsed_s
        match self.phase:
            case GatheringPhase.OFF:
                if worth_it and now_s >= self._refused_until_s:
                    self._other_rate, self.phase = rate, GatheringPhase.TRIAL
            case GatheringPhase.TRIAL:
                if rate >= KEPT_SHARE * self._other_rate:
                    self.phase, self._windows, self._refused_s = GatheringPhase.ON, 0, REFUSED_S_MIN
                else:
                    self._refuse(now_s)
            case GatheringPhase.ON:
                self._windows += 1
                if not mostly_followed:
                    self.phase = GatheringPhase.OFF
                elif self._windows >= CHECK_WINDOWS:
                    self._other_rate, self.phase = rate, GatheringPhase.CHECK
            case GatheringPhase.CHECK:
                if self._other_rate < KEPT_SHARE * rate:
                    self._refuse(now_s)
                else:
                    self.phase, self._windows = GatheringPhase.ON if worth_it else GatheringPhase.OFF, 0

    def _refuse(self, now_s: float) -> None:
        self.phase = GatheringPhase.OFF
        self._refused_until_s = now_s + self._refused_s
        self._refused_s = min(2 * self._refused_s, REFUSED_S_MAX)
