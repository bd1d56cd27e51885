"""What goes wrong with ledgers over several bookies: the errors behind the failures of `ledger.quorum`."""

from __future__ import annotations

from typing import Final

from magnetar.base.errors import LedgerError
from magnetar.ledger.api import LedgerFencedError, LedgerWriteError, NoSuchLedgerError
from magnetar.ledger.quorum.effects import Failed, Failure


class LedgerUnauthorizedError(LedgerError):
    """The bookies know the ledger by another password."""


class LedgerUnreadableError(LedgerError):
    """Too few bookies answered for certain: neither an entry nor its absence. Later it may be another."""

    retriable = True


_ERRORS: Final = {
    Failure.FENCED: LedgerFencedError,
    Failure.NOT_ENOUGH_BOOKIES: LedgerWriteError,
    Failure.UNAUTHORIZED: LedgerUnauthorizedError,
    Failure.UNREADABLE: LedgerUnreadableError,
}


def error_of(ledger_id: int, failed: Failed) -> LedgerError:
    """The error to raise."""
    if failed.failure is Failure.GONE:
        return NoSuchLedgerError(ledger_id)
    return _ERRORS[failed.failure](failed.reason)
