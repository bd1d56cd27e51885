"""A histogram of latencies with three significant digits, of bounded memory."""

from __future__ import annotations

from collections import Counter

PERCENTILES = {"p50_ms": 0.50, "p99_ms": 0.99, "p99.9_ms": 0.999, "max_ms": 1.0}


class Latencies:
    """Latencies of messages, each from the time at which it was due."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, nanoseconds: int, count: int = 1) -> None:
        """Adds `count` messages with a latency."""
        micros = max(0, nanoseconds) // 1000
        step = 10 ** max(0, len(str(micros)) - 3)
        self._counts[micros // step * step] += count

    def milliseconds(self) -> dict[str, float | None]:
        """The percentiles in milliseconds; None without messages."""
        total = len(self)
        if not total:
            return dict.fromkeys(PERCENTILES)
        found: dict[str, float | None] = {}
        times = sorted(self._counts)
        seen = 0
        at = -1
        for name, share in PERCENTILES.items():
            while seen < share * total:
                at += 1
                seen += self._counts[times[at]]
            found[name] = times[at] / 1000
        return found
