"""Who is told what becomes of appended entries."""

from __future__ import annotations

from typing import Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError


class LogListener(Protocol):
    """Told, on the event loop, what becomes of appended entries."""

    def appended(self, run: EntryRun) -> None:
        """These entries are durable. Called in order of position, in the tick they became durable."""

    def failed(self, error: LogError) -> None:
        """What was appended and not reported is lost or in doubt; the log takes no more. Called once.

        LogFencedError: another owner has the log; LogFailedError: it could not be written.
        """
