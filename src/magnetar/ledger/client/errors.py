"""Errors of ledgers over several bookies, for the failures of `ledger.quorum`."""

from __future__ import annotations

from typing import Final

from magnetar.base.errors import LedgerError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerFencedError, LedgerWriteError, NoSuchLedgerError
from magnetar.ledger.quorum.effects import Failed, Failure


class LedgerUnauthorizedError(LedgerError):
    """The bookies know the ledger with another password."""


class LedgerUnreadableError(LedgerError):
    """Too few bookies gave a certain answer: neither an entry nor its absence is known. A later attempt may
    succeed."""

    retriable = True


_ERRORS: Final = {
    Failure.FENCED: LedgerFencedError,
    Failure.NOT_ENOUGH_BOOKIES: LedgerWriteError,
    Failure.UNAUTHORIZED: LedgerUnauthorizedError,
    Failure.UNREADABLE: LedgerUnreadableError,
}


def error_of(ledger_id: LedgerId, failed: Failed) -> LedgerError:
    """The error for a failure."""
    if failed.failure is Failure.GONE:
        return NoSuchLedgerError(ledger_id)
    return _ERRORS[failed.failure](failed.reason)
