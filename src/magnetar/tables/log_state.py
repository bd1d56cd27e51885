"""Asks a broker for the ledgers of a partition, and how far its readers get."""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.reader import last_position
from magnetar.tables.ledgers import KnownLog


def log_state(client: Client, topic: TopicName) -> KnownLog:
    """The state of a partition's log. Raises AdminCallError, ClientError.

    Apache's brokers tell only their clients where an open transaction holds readers back. A query that
    passed its messages would lose them when it is committed.
    """
    stats = client.admin.internal_stats(topic)
    # Magnetar's brokers count messages, and name the limit where there is one.
    if "maxReadPosition" in stats or "firstIndex" in stats:
        return KnownLog.from_internal_stats(stats)
    return KnownLog.from_bounded_stats(stats, last_position(client, topic))
