"""Waiting for what several places change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DEADLINE_S = 60.0


async def eventually(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds. Raises AssertionError after a minute."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + DEADLINE_S
    while not condition():  # several places change what is looked at
        assert loop.time() < until_s, "it did not come about"
        await asyncio.sleep(0.01)
