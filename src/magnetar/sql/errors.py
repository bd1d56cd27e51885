"""Errors of SQL over topics.

SqlError
├── SqlPackagesError       the engine is not installed
├── StatementError         the statement is not understood, or asks for what queries cannot do
│   └── TooDeepError       it has too many operators within each other
├── UnknownTopicError      a table that is not a topic
├── QueryLimitError        a limit of memory, time or rows was reached
├── QueryStoppedError      the query was interrupted
└── RowsGoneError          messages that the query should read were removed meanwhile
"""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class SqlError(MagnetarError):
    """A query cannot be answered; the message names cause and remedy."""


class SqlPackagesError(SqlError):
    """The query engine is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"SQL needs {name}: pip install '.[sql]' in a clone")


class StatementError(SqlError):
    """The statement is not valid, or is not one that reads topics."""

    status = 400


class TooDeepError(StatementError):
    """The statement has too many operators within each other."""

    def __init__(self) -> None:
        super().__init__(
            "the statement has too many operators within each other: use lists, as in `IN (…)`, or shorter"
            " expressions"
        )


class UnknownTopicError(SqlError):
    """A table of the statement is not a topic of the cluster."""

    status = 404

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"no topic {table}: {reason}")
        self.table = table


class QueryLimitError(SqlError):
    """A limit ended the query."""


class QueryStoppedError(SqlError):
    """The query was interrupted before it was done."""

    def __init__(self) -> None:
        super().__init__("the query was interrupted")


class RowsGoneError(SqlError):
    """Messages that were there when the query began were removed before it read them."""

    retriable = True

    def __init__(self, topic: str, start: str, gone: str, *, rule: str = "") -> None:
        """`gone`: the lost entries, in words. `rule`: what the namespace removes, in words."""
        super().__init__(
            f"{topic} was read from {start} on, but {gone}. {rule or 'Retention may have removed them.'}"
            " Run the query again, which then reads what is there"
        )
        self.topic = topic
