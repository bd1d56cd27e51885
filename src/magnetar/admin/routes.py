"""The table of everything that is answered."""

from __future__ import annotations

from magnetar.admin import (
    authorization,
    backlog,
    backups,
    bookies,
    broker_stats,
    brokers,
    bundle_routes,
    clusters,
    compaction,
    configuration,
    explain,
    isolation,
    keys,
    lake,
    lookups,
    messages,
    namespace_properties,
    namespaces,
    nonpersistent,
    offload,
    offload_stores,
    openapi,
    pages,
    permissions,
    proxy_stats,
    resource_groups,
    schemas,
    stats,
    subscriptions,
    tenants,
    topics,
    unoffered,
)
from magnetar.admin.call import Route
from magnetar.admin.metrics import handler_for
from magnetar.admin.policies import routes as policies
from magnetar.admin.produce import routes as produce
from magnetar.observability.metrics import Registry

_ROOMS = (
    authorization,
    backlog,
    backups,
    bookies,
    broker_stats,
    brokers,
    bundle_routes,
    clusters,
    compaction,
    configuration,
    explain,
    isolation,
    keys,
    lake,
    lookups,
    messages,
    namespace_properties,
    namespaces,
    nonpersistent,
    offload,
    offload_stores,
    pages,
    permissions,
    policies,
    produce,
    proxy_stats,
    resource_groups,
    schemas,
    stats,
    subscriptions,
    tenants,
    topics,
    unoffered,
)


def all_routes(registry: Registry) -> list[Route]:
    """Every route; `registry` is what `/metrics` shows."""
    table = [("GET", "/metrics", handler_for(registry)), *(route for room in _ROOMS for route in room.ROUTES)]
    return [*table, openapi.route_for(table)]
