"""The states of a session, and the transitions between them (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from magnetar.base.machine import Transitions


class SessionState(Enum):
    """The state of one connection."""

    SILENT = "silent"
    """Nothing has arrived."""
    GREETING = "greeting"
    """It sent CONNECT, and is being authenticated."""
    CONNECTED = "connected"
    """It is served."""
    CLOSING = "closing"
    """Nothing more is taken from it or given to it; its producers and consumers have not left yet."""
    GONE = "gone"
    """It has no state here any more."""


TRANSITIONS: Final[Transitions[SessionState]] = {
    SessionState.SILENT: frozenset({SessionState.GREETING, SessionState.CLOSING}),
    SessionState.GREETING: frozenset({SessionState.CONNECTED, SessionState.CLOSING}),
    SessionState.CONNECTED: frozenset({SessionState.CLOSING}),
    SessionState.CLOSING: frozenset({SessionState.GONE}),
    SessionState.GONE: frozenset(),
}
