"""Holds back work that would change something, such as deletions, while a snapshot is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Stillness:
    """Whether the work may go on. For one event loop."""

    __slots__ = ("_holders", "_waiting")

    def __init__(self) -> None:
        self._holders = 0
        self._waiting: list[asyncio.Future[None]] = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Until the block ends, `passes` waits."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                waiting, self._waiting = self._waiting, []
                for future in waiting:
                    if not future.done():
                        future.set_result(None)

    async def passes(self) -> None:
        """Returns at once when no block holds, else when the last one has ended."""
        while self._holders:
            self._waiting.append(future := asyncio.get_running_loop().create_future())
            await future
