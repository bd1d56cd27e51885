"""The table of everything that is answered."""

from __future__ import annotations

from typing import Final

from magnetar.admin import (
    clusters,
    compaction,
    configuration,
    explain,
    limit_routes,
    lookups,
    messages,
    namespace_properties,
    namespaces,
    nonpersistent,
    offload,
    pages,
    permissions,
    persistence,
    policy_routes,
    schemas,
    stats,
    subscriptions,
    tenants,
    topics,
)
from magnetar.admin.call import Call, Handler, Route
from magnetar.admin.errors import NotImplementedHereError
from magnetar.admin.metrics import handler_for
from magnetar.observability.metrics import Registry

NOT_OFFERED: Final = {
    "/admin/v2/broker-stats": "broker statistics by this path; /metrics has them",
    "/admin/v2/resource-quotas": "resource quotas",
    "/admin/v2/resourcegroups": "resource groups",
    "/admin/v2/bookies": "racks of bookies",
    "/admin/v2/worker": "functions",
    "/admin/v2/worker-stats": "functions",
    "/admin/v2/functions": "functions",
    "/admin/v2/scalable": "scalable topics",
    "/admin/v3/functions": "functions",
    "/admin/v3/source": "connectors",
    "/admin/v3/sources": "connectors",
    "/admin/v3/sink": "connectors",
    "/admin/v3/sinks": "connectors",
    "/admin/v3/packages": "packages",
    "/admin/v3/transactions": "transactions",
    "/topics": "publishing over REST",
    "/ws": "the WebSocket API",
}
"""Groups of Pulsar's API that are answered 501, and what they are about."""


def _refuse(what: str) -> Handler:
    async def refuse(call: Call) -> object:
        raise NotImplementedHereError(f"this broker does not offer {what} yet")

    return refuse


def all_routes(registry: Registry) -> list[Route]:
    """Every route; `registry` is what `/metrics` shows."""
    table: list[Route] = [("GET", "/metrics", handler_for(registry))]
    for room in (
        # Before the routes of one cluster's brokers, which its name could hide.
        configuration,
        clusters,
        compaction,
        explain,
        limit_routes,
        lookups,
        messages,
        namespace_properties,
        namespaces,
        nonpersistent,
        offload,
        pages,
        permissions,
        persistence,
        policy_routes,
        schemas,
        stats,
        subscriptions,
        tenants,
        topics,
    ):
        table.extend(room.ROUTES)
    for group, what in NOT_OFFERED.items():
        refuse = _refuse(what)
        table.append(("*", group, refuse))
        table.append(("*", f"{group}/{{rest:path}}", refuse))
    return table
