"""Filters lists of topics by the query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.base.levels import in_namespace
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.system_topics import is_system
from magnetar.broker.watchers.selection import matching

QUERY: Final = ("match", "includeSystemTopic")
"""Parameters of the query that `chosen` reads."""


async def chosen(call: Call, namespace: NamespaceName, topics: Iterable[TopicName]) -> list[str]:
    """The topics that match the wildcard `match`; with `includeSystemTopic` also the brokers' own topics, as
    in Pulsar. Raises BadRequestError."""
    everything = call.flag("includeSystemTopic")
    found = [topic for topic in topics if everything or not is_system(topic)]
    wildcard = call.query.get("match", "")
    if wildcard:
        found = await matching(in_namespace(wildcard, namespace), found, call.broker.watchers.turns)
    return [str(topic) for topic in found]
