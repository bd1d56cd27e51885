"""Orders the logs whose cursors are read back after a crash: first come, first served, a few at a time.

After a broker was killed, clients ask for hundreds of busy topics at once. If all were read back in parallel,
all would be ready at the same, late time; one after the other, the first is ready at once, and the last no
later.

A place is for computing. A log that waits for a device or for bookies keeps its place for `HELD_S` and then
continues without one, so that storage which does not answer delays only its own log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar.runtime.tasks import call_later

PLACES: Final = 2
"""Logs in work at the same time: while one waits for the device, the other computes."""
HELD_S: Final = 0.2
"""Seconds that one log delays the others: the time of a hundred cursors in the page cache."""


class ReplayTurns:
    """The places of one process. For one event loop."""

    def __init__(self, *, places: int = PLACES, held_s: float = HELD_S) -> None:
        self._free = places
        self._held_s = held_s
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many logs wait for their turn."""
        return len(self._line)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until all earlier callers have begun, and at most PLACES of them are still in work."""
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            place: asyncio.Future[None] = loop.create_future()
            self._line.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.cancelled():
                    self._line.remove(place)
                else:
                    # The place was assigned to a caller that was cancelled in the same turn.
                    self._pass_on()
                raise
        held = True

        def leave() -> None:
            nonlocal held
            if held:
                held = False
                self._pass_on()

        timer = call_later(self._held_s, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()

    def _pass_on(self) -> None:
        """Assigns the place to the caller that has waited longest; a later caller cannot take it before."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
