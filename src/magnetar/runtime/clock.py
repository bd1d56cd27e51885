"""The clock of a real process."""

from __future__ import annotations

import time


class SystemClock:
    """Reads the operating system's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
