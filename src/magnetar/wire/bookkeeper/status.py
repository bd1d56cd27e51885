"""Outcomes of requests to bookies, and their numbers in both versions of the protocol.

Source: BookKeeper protocol, error codes of version 2 and StatusCode of version 3.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final


@unique
class Status(Enum):
    """Outcome of one request; the value is its number in version 3."""

    OK = 0
    NO_LEDGER = 402
    """The bookie certainly holds nothing of the ledger. Recovery counts it, so it is never a guess."""
    NO_ENTRY = 403
    """The bookie certainly does not hold the entry. Recovery counts it, so it is never a guess."""
    BAD_REQUEST = 404
    IO_ERROR = 501
    """The outcome is unknown: damaged bytes, or a failed disk."""
    UNAUTHORIZED = 502
    """Not authenticated, or a master key other than that of the ledger."""
    BAD_VERSION = 503
    FENCED = 504
    """The ledger was fenced: its former writer may not add any more."""
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506
    UNKNOWN_LEDGER_STATE = 507
    """The bookie may have lost entries of the ledger or its fence: its answer would be neither yes nor no."""

    @property
    def is_certain(self) -> bool:
        """Whether this outcome of a read is certain: the entry exists, or it certainly does not."""
        return self in _CERTAIN


_CERTAIN: Final = frozenset((Status.OK, Status.NO_LEDGER, Status.NO_ENTRY))

_V2: Final = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}

_OF_V2: Final = {number: status for status, number in _V2.items()}


def v2_number(status: Status) -> int:
    """The number to send in version 2.

    UNKNOWN_LEDGER_STATE is sent as an I/O error, which means the same to a reader: Apache's client of version
    2 does not know 107, throws, and loses the connection with all requests that wait on it.
    """
    return _V2[Status.IO_ERROR if status is Status.UNKNOWN_LEDGER_STATE else status]


def of_v2(number: int) -> Status:
    """The status of a number of version 2; an unknown number counts as an I/O error, which is not certain."""
    return _OF_V2.get(number, Status.IO_ERROR)


def of_v3(number: int) -> Status:
    """The status of a StatusCode; an unknown code counts as an I/O error, which is not certain."""
    try:
        return Status(number)
    except ValueError:
        return Status.IO_ERROR
