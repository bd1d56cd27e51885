"""The log of a topic as it was at a time: its entries up to the last one that was stored by then.

The broker's clock counts, not that of producers: a log is ordered by it, so that a state is a beginning of
the log. The broker finds the end with a few reads. What was removed since then is not there; and a message of
a transaction belongs to the time of its sending, once it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.sql.errors import StatementError
from magnetar.tables.ledgers import KnownLog


@dataclass(frozen=True, slots=True)
class TimeAsked:
    """The time of a state, and the time of the query; Unix ms."""

    time_ms: int | None
    """None: the expression cannot be read as a time."""
    now_ms: int


def log_at(client: Client, topic: TopicName, log: KnownLog, asked: TimeAsked) -> KnownLog:
    """The part of one partition's log that was there. Raises StatementError, ClientError, AdminCallError."""
    if asked.time_ms is None:
        raise StatementError("FOR SYSTEM_TIME AS OF needs a time, such as '2026-11-30 12:00:00+01'")
    if asked.time_ms > asked.now_ms:
        raise StatementError("FOR SYSTEM_TIME AS OF has a time to come, whose state is not known yet")
    if not log.is_complete:
        raise StatementError(
            "FOR SYSTEM_TIME AS OF needs the admin interface, which does not answer: give --admin-url"
        )
    if not log.ledgers:
        return log
    if log.first_index is None:
        raise StatementError(
            f"the brokers of {topic} do not say when they stored a message: use conditions on publish_time"
        )
    # Brokers know no time before 1970; nothing was stored by then.
    end = client.admin.position_by_time(topic, max(0, asked.time_ms + 1))
    return replace(log, end=max(end, log.first)) if end < log.end else log
