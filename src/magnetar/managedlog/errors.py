"""Errors of managed logs."""

from __future__ import annotations

from magnetar.base.errors import LogError
from magnetar.base.ids import LedgerId


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


class LedgerIdsWentBackError(LogError):
    """A new ledger of the log has an id that is not above all earlier ones, so its entries would have wrong
    positions.

    The ids come from the metadata of BookKeeper. It was restored from an older copy, or is of other bookies.
    """

    def __init__(self, new: LedgerId, last: LedgerId) -> None:
        super().__init__(
            f"the metadata service gave a new ledger the id {new}, and the log already has ledger {last}: the"
            " ledgers' metadata is an older copy, or belongs to other bookies than before. The log was not"
            " changed; start the brokers with the --metadata that the cluster was made with, or restore the"
            " newer metadata"
        )
        self.new = new
        self.last = last


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
