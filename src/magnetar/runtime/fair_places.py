"""Places for dear work: a few at a time, and those who wait go on owner after owner."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from magnetar.base.errors import MagnetarError


class CrowdedError(MagnetarError):
    """An owner has as many waiting as it may."""


class FairPlaces:
    """Work of one owner, however much of it there is, lets that of others through in turn."""

    def __init__(self, places: int, *, waiting_max: int) -> None:
        """`waiting_max`: of one owner; who pays for more is the owner, by CrowdedError."""
        self._free = places
        self._waiting_max = waiting_max
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Who was served longest ago comes first."""

    @asynccontextmanager
    async def take(self, owner: Hashable) -> AsyncIterator[None]:
        """Waits for a place and has it for the block. Raises CrowdedError at once."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, owner: Hashable) -> None:
        line = self._waiting.setdefault(owner, deque())
        if len(line) >= self._waiting_max:
            raise CrowdedError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The place was given just before.
                self._give_back()
            elif turn in line:
                line.remove(turn)
                if not line and self._waiting.get(owner) is line:
                    del self._waiting[owner]
            raise

    def _give_back(self) -> None:
        """Hands a place to whoever is next; only while nobody waits there are free ones."""
        while self._waiting:
            owner = next(iter(self._waiting))
            line = self._waiting.pop(owner)
            turn = line.popleft()
            if line:
                self._waiting[owner] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
