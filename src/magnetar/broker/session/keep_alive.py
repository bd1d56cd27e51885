"""Whether a client is still there (pure).

One look each keep-alive interval: who was heard since the last one is there; who is silent is pinged, and
given up when silent for another interval.
"""

from __future__ import annotations

from enum import Enum


class Liveness(Enum):
    """What a look says."""

    THERE = "there"
    PING = "ping"
    NOT_GREETED = "no CONNECT within the keep-alive interval"
    DEAD = "no answer to PING within the keep-alive interval"


class KeepAlive:
    """Of one client."""

    __slots__ = ("_pinged", "heard")

    heard: bool
    """Whether anything was heard since the last look; set with each read."""

    def __init__(self) -> None:
        self.heard = True
        self._pinged = False

    def answered(self) -> None:
        """The client answered a PING."""
        self._pinged = False

    def look(self, *, connected: bool, unread: bool) -> Liveness:
        """Once in the interval. `unread`: nothing is read because of our own budgets; silence is no sign of
        death then."""
        if self.heard or unread:
            self.heard = self._pinged = False
            return Liveness.THERE
        if self._pinged:
            return Liveness.DEAD
        if not connected:
            return Liveness.NOT_GREETED
        self._pinged = True
        return Liveness.PING
