"""Starts the event loop that a process lives on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

_GC_THRESHOLD = 50_000
"""Allocations before the youngest generation is collected. The default (700) runs a collection every
few hundred messages; nothing on the hot path makes cycles."""


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Runs `main` to its end on uvloop where it is installed, on asyncio's loop elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def settle_heap() -> None:
    """Called once after start: what lives now lives for ever, so collections need not walk it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 100)
