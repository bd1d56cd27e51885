"""Runs conversions on idle cores only, without starving them for good.

What computes runs in a thread of the class SCHED_IDLE: a thread that wakes up, the broker's loop above all,
takes its core at once. With a lower priority alone the kernel lets it finish its time slice first, some
milliseconds that every message of that moment waits. Where others leave no core at all, parts are done at the
process's own priority: a thread of that class is then given a thousandth of a core, and a part takes minutes.
What writes does so there always: a thread that is kept waiting inside the file system keeps commits of the
journal waiting that others need.
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
"""A part that took so long and had less of a core than this was starved."""
AWAKE_PARTS: Final = 16
"""Parts at the process's own priority after one that was starved: some 64 MiB of entries."""
_REST_MAX_S: Final = 0.05
_LOOK_S: Final = 0.1
"""Between two looks at what others leave; the system counts in hundredths of a second."""
_STAT: Final = "/proc/stat"


def behind_everyone() -> None:
    """Lets the calling thread run only on an idle core, where the system supports that."""
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):  # a sandbox may refuse; the lower priority stays
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def idle_s() -> float | None:
    """Seconds that the machine's cores were idle, together, since it was started; None: it does not say."""
    try:
        with open(_STAT, "rb") as file:
            # The line of all cores: user, nice, system, idle, waiting for devices.
            return sum(map(int, file.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Yielding:
    """See `Manners`. Used by one thread; its own thread ends with the process."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._thread = OneThread("behind", first=behind_everyone)
        self._awake = 0
        self._looked = time.monotonic(), idle_s()
        self._used_s = 0.0
        """Seconds of a core that parts used since that check."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Computes on idle cores; at the process's own priority where others leave no core, and after a part
        that was starved."""
        if not self._awake and self._no_core_is_left():
            self._awake = AWAKE_PARTS
        if self._awake:
            self._awake -= 1
            return part()
        return self._thread.wait_for(self._timed, part)

    def _no_core_is_left(self) -> bool:
        """Whether parts would have been starved since the last look."""
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
        """Calls it, and leaves the disk to others for as long as it took."""
        begun_s = time.monotonic()
        part()
        time.sleep(min(time.monotonic() - begun_s, _REST_MAX_S))


def starved(taken_s: float, used_s: float) -> bool:
    """Whether something that used `used_s` of a core in `taken_s` would hardly ever end."""
    return taken_s > STARVED_S and used_s < STARVED_SHARE * taken_s
