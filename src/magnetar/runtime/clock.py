"""The clock of a real process."""

from __future__ import annotations

import time

from magnetar.base.clock import SettledTime


class SystemClock:
    """Reads the operating system's clocks."""

    __slots__ = ("_settled",)

    def __init__(self) -> None:
        self._settled = SettledTime(self.now_ms(), _running_ms())

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def settled_ms(self) -> int:
        return self._settled.of(self.now_ms(), _running_ms())


def _running_ms() -> float:
    """Milliseconds of a clock that is never set. Where the system has one that counts while the machine
    sleeps, that one is used: a laptop that wakes up must not look like a clock that was set."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000.0
    return time.monotonic() * 1000.0
