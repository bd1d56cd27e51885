"""Closes lost connections in turns of the event loop.

A client with twenty thousand readers that dies would detach them all in one step: half a second in which no
other client is served. So the consumers of such a client are detached a bounded number per turn, and its
session counts as lost when it has none. Until then it is as if its end had been noticed a little later:
messages to it are dropped, and redelivered when its consumer is detached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar.broker.ports import SessionPort

FEW: Final = 50
"""A session with no more consumers is lost at once."""
LEAVING_MAX: Final = 200
"""Consumers of others taken off in one turn: 20 to 30 µs each, with what they leave to do."""


class Farewells:
    """The lost connections of one broker."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls in the next turn of the loop."""
        self._soon = soon
        self._lost: deque[SessionPort] = deque()
        """They still have consumers."""

    def lost(self, session: SessionPort) -> None:
        """The session's connection is lost."""
        if len(session.consumers) <= FEW:
            session.lost()
            return
        session.closing("the connection is gone; its many consumers leave a few in a turn")
        self._lost.append(session)
        if len(self._lost) == 1:
            self._soon(self._take_off)

    def finish(self) -> None:
        """Detaches all at once: the broker stops."""
        while self._lost:
            self._lost.popleft().lost()

    def _take_off(self) -> None:
        left = 0
        while self._lost and left < LEAVING_MAX:
            session = self._lost[0]
            if session.consumers:
                left += 1
                session.leave(session.consumers.popitem()[1])
            else:
                self._lost.popleft()
                session.lost()
        if self._lost:
            self._soon(self._take_off)
