"""The listener of a log's appends."""

from __future__ import annotations

from typing import Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError


class LogListener(Protocol):
    """Notified on the event loop of the outcome of appends."""

    def appended(self, run: EntryRun) -> None:
        """These entries are durable. Called in order of position, in the turn in which they became
        durable."""

    def failed(self, error: LogError) -> None:
        """All appends that were not reported are lost or in doubt; the log refuses further ones. Called once.

        LogFencedError: another owner has the log; LogFailedError: it could not be written.
        """
