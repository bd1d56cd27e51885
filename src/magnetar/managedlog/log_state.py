"""States of a managed log and the ways between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LogState(Enum):
    """What a log can do."""

    OPEN = "open"
    """Everything."""
    TERMINATED = "terminated"
    """Everything except appending; for good."""
    FAILED = "failed"
    """Reading. Entries could not be made durable; only opening the log again helps."""
    FENCED = "fenced"
    """Reading what it knew. Another owner has the log."""
    CLOSING = "closing"
    """Waits for what was appended before; takes nothing more."""
    CLOSED = "closed"
    """Nothing."""


TRANSITIONS: Final[dict[LogState, frozenset[LogState]]] = {
    LogState.OPEN: frozenset({LogState.TERMINATED, LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.TERMINATED: frozenset({LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.FAILED: frozenset({LogState.FENCED, LogState.CLOSING}),
    LogState.FENCED: frozenset({LogState.CLOSING}),
    LogState.CLOSING: frozenset({LogState.CLOSED}),
    LogState.CLOSED: frozenset(),
}
