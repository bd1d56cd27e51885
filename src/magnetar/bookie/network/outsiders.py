"""Clients that have not authenticated: a bookie keeps few, and none for long."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar.bookie.network.connection import BookieConnection
from magnetar.runtime.tasks import call_later

_log = logging.getLogger("magnetar.bookie.network")

OUTSIDERS_MAX: Final = 1_024
"""Clients that have not authenticated; a further one ends the oldest."""


class Outsiders:
    """Those of one bookie."""

    def __init__(self) -> None:
        self._timers: dict[BookieConnection, asyncio.TimerHandle] = {}
        """The oldest first, and when each is disconnected."""

    def add(self, connection: BookieConnection, seconds: float) -> None:
        """A client has so much time to authenticate."""
        self._timers[connection] = call_later(seconds, connection.close)
        if len(self._timers) > OUTSIDERS_MAX:
            self.drop_oldest()

    def remove(self, connection: BookieConnection) -> None:
        """A client has authenticated, or has gone."""
        # Its timer would keep the buffers of a closed connection in memory until it rings.
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def drop_oldest(self) -> bool:
        """Frees the place of the client that has failed to authenticate for longest; False: there is none."""
        oldest = next(iter(self._timers), None)
        if oldest is None:
            return False
        self.remove(oldest)
        _log.warning("%s: connection closed: not authenticated, and others wait for its place", oldest.peer)
        oldest.close()
        return True
