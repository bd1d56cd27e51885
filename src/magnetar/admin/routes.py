"""The table of all routes."""

from __future__ import annotations

from magnetar.admin import unoffered
from magnetar.admin.access import authorization, permissions
from magnetar.admin.brokers import (
    backups,
    bookies,
    broker_stats,
    brokers,
    configuration,
    lookups,
    proxy_stats,
)
from magnetar.admin.calls.call import Route
from magnetar.admin.clusters import clusters, isolation
from magnetar.admin.functions import functions, instances, packages, workers
from magnetar.admin.metrics.broker_metrics import handler_for
from magnetar.admin.namespaces import bundle_routes, namespace_properties, namespaces
from magnetar.admin.offload import lake, offload, offload_stores
from magnetar.admin.policies import policy_routes as policies
from magnetar.admin.produce import produce_routes as produce
from magnetar.admin.serving import openapi, pages
from magnetar.admin.sql import sql_routes
from magnetar.admin.subscriptions import explain, subscriptions
from magnetar.admin.tenants import resource_groups, tenants
from magnetar.admin.topics import backlog, compaction, keys, messages, nonpersistent, schemas, stats, topics
from magnetar.admin.transactions import entries, transactions
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
    functions,
    instances,
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
    packages,
    pages,
    permissions,
    policies,
    produce,
    proxy_stats,
    resource_groups,
    schemas,
    sql_routes,
    stats,
    subscriptions,
    tenants,
    topics,
    transactions,
    entries,
    workers,
    unoffered,
)


def all_routes(registry: Registry) -> list[Route]:
    """All routes. `registry`: the metrics for `/metrics`."""
    table = [("GET", "/metrics", handler_for(registry)), *(route for room in _ROOMS for route in room.ROUTES)]
    return [*table, openapi.route_for(table)]
