"""Logs whose cursors are read back after a crash: first asked, first served, a few at a time.

A broker that was killed has hundreds of busy topics asked for at once. All of them beside each other would be
ready at the same time, the last one's; one after the other the first is ready at once, and the last no later.

A place is for computing. Who waits for a device or for bookies keeps it for `HELD_S` and then goes on without
one, so that storage which does not answer holds up only who asked it.
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
"""How long one of them keeps others waiting: the time of a hundred cursors that are in the page cache."""


class ReplayTurns:
    """Of one process. For one event loop."""

    def __init__(self, *, places: int = PLACES, held_s: float = HELD_S) -> None:
        self._free = places
        self._held_s = held_s
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._line)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until all who asked before have begun, and few of them are still in work."""
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
                    # It was given to somebody who is gone in the same tick.
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
        """The place goes to who has waited longest; nobody who comes later can take it before."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
