"""The times that an instance goes by, handed in so that tests and trials have their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class InstanceClock(NamedTuple):
    """Two clocks."""

    now_s: Callable[[], float]
    """Seconds from an arbitrary start; never goes back."""
    now_ms: Callable[[], int]
    """Unix milliseconds."""


def now_ms() -> int:
    """Unix milliseconds of this machine."""
    return time.time_ns() // 1_000_000


SYSTEM: Final = InstanceClock(time.monotonic, now_ms)
"""The clocks of this machine."""
