"""What is published."""

from __future__ import annotations

import random
import time


def message_of(size: int) -> bytes:
    """A payload that does not compress, the same in every run."""
    return random.Random(size).randbytes(size)


def now_ms() -> int:
    """Publish time for metadata."""
    return time.time_ns() // 1_000_000
