"""A bounded number of places for expensive work; owners that wait are served in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from magnetar.base.errors import MagnetarError


class CrowdedError(MagnetarError):
    """An owner already has its maximum of waiting calls."""


class FairPlaces:
    """Serves owners in turn, so that the work of one owner does not delay that of the others, however much it
    is."""

    def __init__(self, places: int, *, waiting_max: int) -> None:
        """`waiting_max`: waiting calls per owner; a further one raises CrowdedError."""
        self._free = places
        self._waiting_max = waiting_max
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Waiting calls by owner, the owner that was served longest ago first."""

    @asynccontextmanager
    async def take(self, owner: Hashable) -> AsyncIterator[None]:
        """Waits for a place and holds it for the block. Raises CrowdedError at once when the owner has too
        many calls waiting."""
        await self.enter(owner)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, owner: Hashable) -> None:
        """As `take`, for a caller that gives its place back by `leave`."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)

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
                # The place was assigned just before the cancellation.
                self.leave()
            elif turn in line:
                line.remove(turn)
                if not line and self._waiting.get(owner) is line:
                    del self._waiting[owner]
            raise

    def leave(self) -> None:
        """Gives a place back: to the next waiting call; places are free only while no call waits."""
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
