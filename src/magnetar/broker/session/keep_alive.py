"""Whether a client is still alive (pure).

One check per keep-alive interval: a client that sent anything since the last check is alive; a silent one is
pinged, and given up after another silent interval.
"""

from __future__ import annotations

from enum import Enum


class Liveness(Enum):
    """The result of a check."""

    THERE = "there"
    PING = "ping"
    NOT_GREETED = "no CONNECT within the keep-alive interval"
    DEAD = "no answer to PING within the keep-alive interval"


class KeepAlive:
    """The keep-alive of one client."""

    __slots__ = ("_pinged", "heard")

    heard: bool
    """Whether anything arrived since the last check; set with each read."""

    def __init__(self) -> None:
        self.heard = True
        self._pinged = False

    def answered(self) -> None:
        """The client answered a PING."""
        self._pinged = False

    def look(self, *, connected: bool, unread: bool) -> Liveness:
        """To be called once per interval. `unread`: reading is paused by our own budgets; then silence is no
        sign of death."""
        if self.heard or unread:
            self.heard = self._pinged = False
            return Liveness.THERE
        if self._pinged:
            return Liveness.DEAD
        if not connected:
            return Liveness.NOT_GREETED
        self._pinged = True
        return Liveness.PING
