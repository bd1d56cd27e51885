"""Measures how long the event loop delays its events.

A timer reads the clock: its lateness is the time that a message arriving at that moment waited before the
loop handled it. It fires fifty times a second whatever the load, so messages pay nothing, and ten times a
second while the process is idle. Pauses shorter than its interval are met by chance, each in proportion to
its length: the histogram shows shares of time, not numbers of pauses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.observability.metrics import Exposition

_log = logging.getLogger("magnetar.runtime")

_INTERVAL_S: Final = 0.02
_IDLE_INTERVAL_S: Final = 0.1
_IDLE_SHARE: Final = 0.05
"""A thread that computes for a smaller share of the time counts as idle; the watch itself needs far less."""
BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the histogram. The loop's timers are exact to a millisecond."""
_REPORT_S: Final = 0.2
"""Stalls of this many seconds or more are logged with their cause."""
_REPORTS_APART_S: Final = 10.0


class Lateness:
    """A histogram of lateness in seconds."""

    __slots__ = ("count", "counts", "max_s", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0
        self.max_s = 0.0

    def add(self, late_s: float) -> None:
        """Records one lateness."""
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.count += 1
        self.sum_s += late_s
        self.max_s = max(self.max_s, late_s)


def next_look_s(computing_s: float, passed_s: float) -> float:
    """Seconds until the next reading, when the thread computed for `computing_s` of the last `passed_s`."""
    return _IDLE_INTERVAL_S if computing_s < passed_s * _IDLE_SHARE else _INTERVAL_S


def cause_of(late_s: float, computing_s: float, collecting_s: float) -> str:
    """The cause of a stall of `late_s`, from the thread's CPU time and the collector's time during it."""
    if collecting_s > late_s / 2:
        return "garbage collection"
    if computing_s > late_s / 2:
        return "one piece of work took so long"
    return "the process waited for the processor or for a device"


class LoopWatch:
    """Measures the loop that it is started on."""

    def __init__(self, collecting_s: Callable[[], float]) -> None:
        """`collecting_s`: seconds spent in garbage collections since the process began."""
        self.late = Lateness()
        self._collecting_s = collecting_s
        self._collected_s = 0.0
        self._computed_s = 0.0
        self._due_s = 0.0
        self._interval_s = _INTERVAL_S
        self._reported_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts measuring; to be called on the loop's thread."""
        self._computed_s = time.thread_time()
        self._next(_INTERVAL_S)

    def _next(self, interval_s: float) -> None:
        self._collected_s = self._collecting_s()
        self._interval_s = interval_s
        self._due_s = time.monotonic() + interval_s
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._look)

    def _look(self) -> None:
        now_s = time.monotonic()
        late_s = max(0.0, now_s - self._due_s)
        self.late.add(late_s)
        computed_s, self._computed_s = self._computed_s, time.thread_time()
        computing_s = self._computed_s - computed_s
        if late_s >= _REPORT_S and now_s - self._reported_s >= _REPORTS_APART_S:
            self._reported_s = now_s
            collecting_s = self._collecting_s() - self._collected_s
            _log.warning(
                "the event loop stalled for %d ms: %s (CPU %d ms, garbage collection %d ms)",
                late_s * 1000,
                cause_of(late_s, computing_s, collecting_s),
                computing_s * 1000,
                collecting_s * 1000,
            )
        self._next(next_look_s(computing_s, self._interval_s + late_s))

    def close(self) -> None:
        """Stops measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        late = self.late
        out.histogram(
            "magnetar_loop_stall_seconds",
            "Delay of the event loop at regular checks, caused by other work or garbage collection.",
            BOUNDS_S,
            late.counts,
            late.sum_s,
        )
        out.gauge(
            "magnetar_loop_stall_seconds_max", "Longest delay of the event loop since the start.", late.max_s
        )
        return ()
