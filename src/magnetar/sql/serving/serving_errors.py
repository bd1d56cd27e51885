"""Errors of queries that a broker answers.

SqlError
├── QueriesBusyError    all places are taken: try again
└── QueryFailedError    the query's process says why it has no result, or was killed
"""

from __future__ import annotations

from typing import Final

from magnetar.sql.errors import SqlError

AGAIN_S: Final = 5
"""Seconds after which a refused caller should try again."""


class QueriesBusyError(SqlError):
    """As many queries run as may, and enough wait. Nothing was read."""

    status = 503
    retriable = True
    rest_s = AGAIN_S

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.remedy = f"try again in {AGAIN_S} s, or ask an operator for a higher sql_queries_max"


class QueryFailedError(SqlError):
    """A query has no result, or none to its end."""

    status = 500

    def __init__(self, status: int, reason: str) -> None:
        """`status`: HTTP status that says whose fault it is."""
        super().__init__(reason)
        self.status = status
