"""The last request to offload a log: its status and result. Pure.

NOT_RUN, SUCCESS, ERROR ──begin──▶ RUNNING
RUNNING ──succeed──▶ SUCCESS
RUNNING ──fail──▶ ERROR
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.machine import Machine


class OffloadStatus(Enum):
    """Status of a request, by Pulsar's names (LongRunningProcessStatus)."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


TRANSITIONS: Final[Mapping[OffloadStatus, frozenset[OffloadStatus]]] = {
    OffloadStatus.NOT_RUN: frozenset({OffloadStatus.RUNNING}),
    OffloadStatus.RUNNING: frozenset({OffloadStatus.SUCCESS, OffloadStatus.ERROR}),
    OffloadStatus.SUCCESS: frozenset({OffloadStatus.RUNNING}),
    OffloadStatus.ERROR: frozenset({OffloadStatus.RUNNING}),
}


class OffloadRunningError(MagnetarError):
    """A request to offload the log is under way already."""


class OffloadRequest:
    """The last request to offload one log since it was opened. One request runs at a time."""

    __slots__ = ("_log_name", "_machine", "error", "first_not_offloaded")

    def __init__(self, log_name: str) -> None:
        self.error = ""
        """Why the last request failed; empty when it did not."""
        self.first_not_offloaded: Position | None = None
        """After success: position of the first entry that only the bookies have."""
        self._log_name = log_name
        self._machine = Machine(log_name, TRANSITIONS, OffloadStatus.NOT_RUN)

    @property
    def status(self) -> OffloadStatus:
        """Status of the last request."""
        return self._machine.now

    def begin(self) -> None:
        """Notes the begin of a request. Raises OffloadRunningError while another runs."""
        if self.status is OffloadStatus.RUNNING:
            raise OffloadRunningError(f"log {self._log_name} is being offloaded")
        self._machine.go(OffloadStatus.RUNNING, "it was asked for")
        self.error, self.first_not_offloaded = "", None

    def succeed(self, first_not_offloaded: Position) -> None:
        """Notes that all requested ledgers have a copy."""
        self._machine.go(OffloadStatus.SUCCESS, "everything has a copy")
        self.first_not_offloaded = first_not_offloaded

    def fail(self, reason: str) -> None:
        """Notes that a requested ledger has no copy; a new request may follow."""
        assert reason, "a failure has a reason"
        self._machine.go(OffloadStatus.ERROR, reason)
        self.error = reason

    def check(self) -> None:
        """Asserts what must always hold."""
        story, status = self._machine.story, self.status
        assert (status is OffloadStatus.ERROR) == bool(self.error), (
            f"a reason without a failure, or none: {story}"
        )
        assert (status is OffloadStatus.SUCCESS) == (self.first_not_offloaded is not None), story
