"""Errors of managed logs."""

from __future__ import annotations

from magnetar.base.errors import LogError


class LogClosedError(LogError):
    """The log was closed; open it again."""

    retriable = True


class LogFailedError(LogError):
    """Entries could not be made durable; the log refuses appends until it is opened again.

    The cause is chained.
    """

    retriable = True


class LogFencedError(LogError):
    """Another owner has taken over the log; this one must not write it any more."""

    retriable = True


class LogTerminatedError(LogError):
    """The log was terminated for good: it can be read, not appended to."""


class LogNotFoundError(LogError):
    """There is no log of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"log {name} does not exist")
        self.name = name


class LogExistsError(LogError):
    """There is a log of that name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"log {name} exists already")
        self.name = name


class CursorNotFoundError(LogError):
    """The log has no durable cursor of that name."""

    def __init__(self, log_name: str, cursor_name: str) -> None:
        super().__init__(f"log {log_name} has no cursor {cursor_name!r}")
        self.log_name = log_name
        self.cursor_name = cursor_name


class CursorClosedError(LogError):
    """The cursor was closed or deleted before its changes became durable."""


class InvalidLogDataError(LogError):
    """A value in the metadata store or an entry of a cursor ledger cannot be decoded."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}")
        self.where = where
