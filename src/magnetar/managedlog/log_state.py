"""States of a managed log and of its ledgers, and the transitions between them (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from magnetar.base.machine import Transitions


class LogState(Enum):
    """The state of a log: the operations that it allows."""

    OPEN = "open"
    """All operations."""
    TERMINATED = "terminated"
    """All but appending; for good."""
    FAILED = "failed"
    """Reading. Entries could not be made durable; only opening the log again helps."""
    FENCED = "fenced"
    """Reading of entries known so far. Another owner has the log."""
    CLOSING = "closing"
    """None; waits for earlier appends."""
    CLOSED = "closed"
    """None."""


TRANSITIONS: Final[Transitions[LogState]] = {
    LogState.OPEN: frozenset({LogState.TERMINATED, LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.TERMINATED: frozenset({LogState.FAILED, LogState.FENCED, LogState.CLOSING}),
    LogState.FAILED: frozenset({LogState.FENCED, LogState.CLOSING}),
    LogState.FENCED: frozenset({LogState.CLOSING}),
    LogState.CLOSING: frozenset({LogState.CLOSED}),
    LogState.CLOSED: frozenset(),
}


class LedgersState(Enum):
    """The state of the ledger that takes the appends."""

    BEGINNING = "beginning"
    """This owner has no ledger yet."""
    STEADY = "steady"
    """The ledger takes the appends."""
    ROLLING = "rolling"
    """The next ledger is being created, or its creation failed just now."""
    STOPPED = "stopped"
    """No ledger follows; the ends of the last ones are being stored."""
    ENDED = "ended"
    """The log is closed. Operations under way notice it and change nothing."""


LEDGERS_TRANSITIONS: Final[Transitions[LedgersState]] = {
    LedgersState.BEGINNING: frozenset({LedgersState.STEADY, LedgersState.STOPPED}),
    LedgersState.STEADY: frozenset({LedgersState.ROLLING, LedgersState.STOPPED}),
    LedgersState.ROLLING: frozenset({LedgersState.STEADY, LedgersState.STOPPED}),
    LedgersState.STOPPED: frozenset({LedgersState.ENDED}),
    LedgersState.ENDED: frozenset(),
}
