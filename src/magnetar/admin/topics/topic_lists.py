"""Filters lists of topics by the query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.base.levels import in_namespace
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.system_topics import is_system
from magnetar.broker.watchers.selection import matching
from magnetar.runtime.tasks import in_slices

QUERY: Final = ("match", "includeSystemTopic")
"""Parameters of the query that `chosen` reads."""
_NAMES_PER_TURN: Final = 500
"""Names looked at in a turn of the event loop: about a millisecond."""


async def chosen(call: Call, namespace: NamespaceName, topics: Iterable[TopicName]) -> list[str]:
    """The topics that match the wildcard `match`; with `includeSystemTopic` also the brokers' own topics, as
    in Pulsar. Raises BadRequestError."""
    everything = call.flag("includeSystemTopic")
    found = [
        topic async for topic in in_slices(topics, _NAMES_PER_TURN) if everything or not is_system(topic)
    ]
    wildcard = call.query.get("match", "")
    if wildcard:
        found = await matching(in_namespace(wildcard, namespace), found, call.broker.watchers.turns)
    return [str(topic) async for topic in in_slices(found, _NAMES_PER_TURN)]
