"""`/admin/v2/proxy-stats`: what runs over WebSockets, topic by topic.

Source: Pulsar's admin API of its WebSocket proxy.
"""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import NotHereError
from magnetar.websocket.sockets import sockets_of

_P: Final = "/admin/v2/proxy-stats"


async def stats(call: Call) -> object:
    """Producers and consumers on WebSockets, by topic."""
    return sockets_of(call.broker).describe()


async def stats_of_topic(call: Call) -> object:
    """Producers and consumers on WebSockets, of one topic."""
    name = call.topic()
    found = sockets_of(call.broker).describe(name)
    if not found:
        raise NotHereError(f"{name} has no WebSockets")
    return found[str(name)]


ROUTES: list[Route] = [
    ("GET", f"{_P}/stats", stats),
    ("GET", f"{_P}/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}/stats", stats_of_topic),
]
