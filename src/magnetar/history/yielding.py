"""Runs conversions on idle cores, and on busy ones when no core is idle for long.

Computing parts run in a thread of the class SCHED_IDLE: any thread that wakes up, such as the broker's loop,
gets the core at once. With a mere lower priority, the kernel would let the part finish its time slice, which
delays messages by some milliseconds. When no core is idle, a SCHED_IDLE thread gets a thousandth of a core
and a part takes minutes; parts then run at the process's own priority.

Writing parts always run at the process's own priority. A thread suspended inside the file system would hold
up commits of its journal, on which other writers wait.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final

from magnetar.history.manners import Result
from magnetar.runtime.threads import OneThread

STARVED_S: Final = 2.0
STARVED_SHARE: Final = 0.1
"""Share of a core below which a part that took long counts as starved."""
AWAKE_PARTS: Final = 16
"""Number of parts that run at the process's own priority after a starved one: some 64 MiB of entries."""
_REST_MAX_S: Final = 0.05
_LOOK_S: Final = 0.1
"""Seconds between two reads of the idle time; the system counts it in hundredths of a second."""
_STAT: Final = "/proc/stat"


def behind_everyone() -> None:
    """Lets the calling thread run only on an idle core, where the system supports that."""
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):  # a sandbox may refuse; the lower priority stays
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def idle_s() -> float | None:
    """Seconds that all cores of the machine together were idle since its start; None when it is not known."""
    try:
        with open(_STAT, "rb") as file:
            # The line of all cores: user, nice, system, idle, waiting for devices.
            return sum(map(int, file.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Yielding:
    """See `Manners`. Used by one thread; its own thread ends with the process."""

    def __init__(self) -> None:
        """Starts no thread yet."""
        self._thread = OneThread("behind", first=behind_everyone)
        self._awake = 0
        self._looked = time.monotonic(), idle_s()
        self._used_s = 0.0
        """Seconds of a core that parts used since that check."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Computes on idle cores; at the process's own priority when no core is idle, and after a starved
        part."""
        if not self._awake and self._look_for_core():
            self._awake = AWAKE_PARTS
        if self._awake:
            self._awake -= 1
            return part()
        return self._thread.wait_for(self._timed, part)

    def _look_for_core(self) -> bool:
        """Looks how idle the machine was since the last look; returns whether parts would have starved."""
        (looked_s, before_s), now_s = self._looked, time.monotonic()
        if now_s - looked_s < _LOOK_S:
            return False
        now_idle_s = idle_s()
        used_s, self._used_s = self._used_s, 0.0
        self._looked = now_s, now_idle_s
        if before_s is None or now_idle_s is None:
            return False
        return now_idle_s - before_s + used_s < STARVED_SHARE * (now_s - looked_s)

    def _timed(self, part: Callable[[], Result]) -> Result:
        begun_s, used_s = time.monotonic(), time.thread_time()
        try:
            return part()
        finally:
            taken_s, used_s = time.monotonic() - begun_s, time.thread_time() - used_s
            self._used_s += used_s
            if starved(taken_s, used_s):
                self._awake = AWAKE_PARTS

    def write(self, part: Callable[[], None]) -> None:
        """Runs the part, then pauses as long as it took, so that others can use the disk."""
        begun_s = time.monotonic()
        part()
        time.sleep(min(time.monotonic() - begun_s, _REST_MAX_S))


def starved(taken_s: float, used_s: float) -> bool:
    """Whether a part that used `used_s` of a core within `taken_s` seconds was starved."""
    return taken_s > STARVED_S and used_s < STARVED_SHARE * taken_s
