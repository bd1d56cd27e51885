"""Turns of the event loop: how a test lets everything happen that can happen by itself."""

from __future__ import annotations

import asyncio
from typing import Final

_QUIET_TURNS: Final = 3
"""In a row, in which nothing else was ready to run."""


async def turn_until_quiet(turns_max: int) -> None:
    """Returns when nothing is ready to run, no timer is due and no thread of the pool is at work; else after
    so many turns."""
    loop = asyncio.get_running_loop()
    quiet = 0
    for _ in range(turns_max):
        await asyncio.sleep(0)
        quiet = quiet + 1 if _is_quiet(loop) else 0
        if quiet == _QUIET_TURNS:
            return


def _is_quiet(loop: asyncio.AbstractEventLoop) -> bool:
    # Private in all three, and nothing public tells it. A worker thread is idle when it has handed its result
    # to the loop.
    if loop._ready:  # type: ignore[attr-defined]  # private
        return False
    timers = loop._scheduled  # type: ignore[attr-defined]  # private
    if timers and timers[0].when() <= loop.time():
        return False
    pool = loop._default_executor  # type: ignore[attr-defined]  # private
    return pool is None or pool._idle_semaphore._value == len(pool._threads)
