"""Latency from the intended time of sending, in HdrHistograms.

A generator that waits for a slow answer before it sends the next message would hide the wait of all messages
that should have been sent meanwhile ("coordinated omission"). Here message i is due at `start + i / rate`
whatever happens, and its latency counts from then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

LOWEST_NS: Final = 1_000
HIGHEST_NS: Final = 600_000_000_000
DIGITS: Final = 3
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}


def intended_ns(start_ns: int, rate_per_s: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """Times at which messages `first` to `first + count - 1` are due."""
    return start_ns + np.arange(first, first + count, dtype=np.int64) * 1_000_000_000 // rate_per_s


def due_count(start_ns: int, rate_per_s: int, now_ns: int) -> int:
    """How many messages are due until `now_ns` (inclusive); 0 before the start."""
    # floor(i * 10**9 / rate) <= d  is  i < (d + 1) * rate / 10**9.
    return 0 if now_ns < start_ns else -((now_ns - start_ns + 1) * rate_per_s // -1_000_000_000)


class Latencies:
    """A histogram of times in nanoseconds, from 1 us to 10 min with three digits."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
        self._max_ns = 0

    def __len__(self) -> int:
        return int(self._histogram.get_total_count())

    def record(self, times_ns: npt.NDArray[np.int64]) -> None:
        """Add many times at once; negative ones are refused with ValueError."""
        if not len(times_ns):
            return
        if int(times_ns.min()) < 0:
            raise ValueError("a time is negative")
        self._max_ns = max(self._max_ns, int(times_ns.max()))
        values, counts = np.unique(
            np.clip(times_ns, LOWEST_NS, HIGHEST_NS) // 1000 * 1000, return_counts=True
        )
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._histogram.record_value(value, count)

    def milliseconds(self, prefix: str = "") -> dict[str, float]:
        """`p50_ms`, `p90_ms`, `p99_ms`, `p99.9_ms`, `p99.99_ms`, `max_ms` (exact), named after `prefix`."""
        out = {
            f"{prefix}{name}_ms": self._histogram.get_value_at_percentile(percentile) / 1e6
            for name, percentile in PERCENTILES.items()
        }
        out[f"{prefix}max_ms"] = self._max_ns / 1e6
        return out

    def encoded(self) -> str:
        """The whole histogram in HdrHistogram's own exchange format (V2, deflated, base64)."""
        return str(self._histogram.encode().decode())


def median_metrics(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Per metric the median of the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: float(np.median([run[name] for run in runs if name in run])) for name in names}
