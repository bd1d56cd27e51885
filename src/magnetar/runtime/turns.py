"""Serialises work on the same keys, in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager


class Turns:
    """One holder at a time per key. A key without callers costs nothing."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[Hashable]) -> AsyncIterator[None]:
        """Holds all `keys` for the block, after all earlier holders of any of them; first come, first served.

        Cannot deadlock: it enters all queues at once.
        """
        wanted = frozenset(keys)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = {self._last[key] for key in wanted if key in self._last}
        self._last.update(dict.fromkeys(wanted, done))
        try:
            for earlier in before:
                # Shielded: a caller that is cancelled while it waits must not break the queue for others.
                await asyncio.shield(earlier)
            yield
        finally:
            self._leave(wanted, done, before)

    def _leave(
        self,
        wanted: frozenset[Hashable],
        done: asyncio.Future[None],
        before: set[asyncio.Future[None]],
    ) -> None:
        waiting = [earlier for earlier in before if not earlier.done()]
        if waiting:
            # Cancelled before its turn: the callers after it wait for the callers before it.
            task = asyncio.gather(*waiting)
            task.add_done_callback(lambda _: self._finish(wanted, done))
        else:
            self._finish(wanted, done)

    def _finish(self, wanted: frozenset[Hashable], done: asyncio.Future[None]) -> None:
        done.set_result(None)
        for key in wanted:
            if self._last.get(key) is done:
                del self._last[key]
