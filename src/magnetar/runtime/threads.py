"""Work that computes for milliseconds, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """What `work` returns or raises, called in a thread of the loop's pool.

    Only worth it for C code that releases the interpreter's lock; Python code would still hold up the loop.
    When the caller is cancelled, `work` goes on and its result is dropped.
    """
    return await asyncio.to_thread(work)
