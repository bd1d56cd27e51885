"""States of a managed log and of its ledgers, and the ways between them (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from magnetar.base.machine import Transitions


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


TRANSITIONS: Final[Transitions[LogState]] = {
    LogState.OPEN: frozenset({LogState.TERMINATED, LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.TERMINATED: frozenset({LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.FAILED: frozenset({LogState.FENCED, LogState.CLOSING}),
    LogState.FENCED: frozenset({LogState.CLOSING}),
    LogState.CLOSING: frozenset({LogState.CLOSED}),
    LogState.CLOSED: frozenset(),
}


class LedgersState(Enum):
    """What becomes of the ledger that takes the appends."""

    BEGINNING = "beginning"
    """There is none of this owner yet."""
    STEADY = "steady"
    """It is the one for now."""
    ROLLING = "rolling"
    """The next one is being made, or could not be made just now."""
    STOPPED = "stopped"
    """No ledger follows; what is left of its ends is being written."""
    ENDED = "ended"
    """The log is closed. What is still under way finds that out and changes nothing."""


LEDGERS_TRANSITIONS: Final[Transitions[LedgersState]] = {
    LedgersState.BEGINNING: frozenset({LedgersState.STEADY, LedgersState.STOPPED}),
    LedgersState.STEADY: frozenset({LedgersState.ROLLING, LedgersState.STOPPED}),
    LedgersState.ROLLING: frozenset({LedgersState.STEADY, LedgersState.STOPPED}),
    LedgersState.STOPPED: frozenset({LedgersState.ENDED}),
    LedgersState.ENDED: frozenset(),
}
