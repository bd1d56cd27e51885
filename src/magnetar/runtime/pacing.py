"""Work in Python beside the event loop, in short pieces, bounded, and tenant after tenant (driver).

A thread of Python code shares the interpreter's lock with the loop. Each time that the loop gives it away,
the thread may keep it for five milliseconds. So this work gives it away by itself: it says at each step that
it may be interrupted (`WorkPace.step`), and after `SLICE_S` it sleeps for `REST_S`. However much of it there
is, one thread does it, and the loop has two thirds of the time.
Between two steps there must be less than a slice of work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from magnetar.runtime.fair_places import FairPlaces
from magnetar.runtime.interruption import TookTooLongError

Result = TypeVar("Result")

SLICE_S: Final = 0.0005
"""Seconds of work after which it rests: what the loop may feel of it."""
REST_S: Final = 0.001
"""Seconds of a rest."""
WAITING_MAX: Final = 10_000
"""Calls of one owner that wait; each subscription has one at a time."""


class WorkPace:
    """The pace of one piece of work, in one thread."""

    __slots__ = ("_cpu_s", "_left_s", "_now_s", "_rest", "_until_s")

    def __init__(
        self,
        limit_s: float,
        rest: Callable[[float], object] | None,
        now_s: Callable[[], float] = time.perf_counter,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`limit_s`: processor time in all, in seconds. `rest` sleeps; None: it need not rest. `cpu_s`: the
        processor time of this thread: on a busy machine others' work is not counted."""
        self._rest = rest
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._left_s = cpu_s() + limit_s
        self._until_s = now_s() + SLICE_S

    def step(self) -> None:
        """The work may be interrupted here. Raises TookTooLongError when its time is over."""
        if self._now_s() < self._until_s:
            return
        if self._cpu_s() > self._left_s:
            raise TookTooLongError("its processor time is over")
        if self._rest is not None:
            self._rest(REST_S)
        self._until_s = self._now_s() + SLICE_S


_PLACES: Final = FairPlaces(1, waiting_max=WAITING_MAX)
_THREAD: Final = ThreadPoolExecutor(1, "paced-work")
"""Its thread starts with the first call."""


async def paced(owner: Hashable, limit_s: float, work: Callable[[WorkPace], Result]) -> Result:
    """Runs `work` in a thread at a pace that the loop does not feel; owners are served in turn.

    Raises CrowdedError when the owner has too many calls waiting, and the errors of `work`, TookTooLongError
    among them. When the caller is cancelled, `work` goes on and its result is dropped.
    """
    async with _PLACES.take(owner):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREAD, lambda: work(WorkPace(limit_s, time.sleep)))
