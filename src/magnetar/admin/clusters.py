"""`/admin/v2/clusters` and `/admin/v2/brokers`: who we are, and whether we work."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from magnetar import __version__
from magnetar.admin.call import Call, Route, Text
from magnetar.admin.errors import NotHereError
from magnetar.admin.health import check_health
from magnetar.broker.errors import ConflictError, PreconditionFailedError, ServiceNotReadyError
from magnetar.metadata import keys
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, NotFoundError


async def list_clusters(call: Call) -> object:
    return await call.broker.policies.clusters()


async def get_cluster(call: Call) -> object:
    document = await call.broker.policies.cluster_document(call.name("cluster"))
    if document is None:
        raise NotHereError(f"cluster {call.params['cluster']} does not exist")
    return document


async def create_cluster(call: Call) -> object:
    name = call.name("cluster")
    value = json.dumps(call.json_object()).encode()
    try:
        await call.broker.store.put(keys.cluster(name), value, expected_version=MUST_NOT_EXIST)
    except BadVersionError as error:
        raise ConflictError(f"cluster {name} already exists") from error
    return None


async def update_cluster(call: Call) -> object:
    await get_cluster(call)
    value = json.dumps(call.json_object()).encode()
    await call.broker.store.put(keys.cluster(call.name("cluster")), value)
    return None


async def delete_cluster(call: Call) -> object:
    name = call.name("cluster")
    if name == call.broker.config.cluster:
        raise PreconditionFailedError(f"{name} is the cluster of this broker")
    try:
        await call.broker.store.delete(keys.cluster(name))
    except NotFoundError as error:
        raise NotHereError(f"cluster {name} does not exist") from error
    return None


async def empty_map(call: Call) -> object:
    """What can be set per cluster and is not: nothing of it is offered yet."""
    return {}


async def broker_id(call: Call) -> str:
    """This broker's `host:port` of the admin API, as the client reaches it."""
    return f"{call.broker.config.advertised_host or call.host}:{call.service.http_port}"


async def broker_port(call: Call) -> int:
    """Port of the binary protocol. Raises ServiceNotReadyError before the broker has told it."""
    document = await call.broker.policies.cluster_document(call.broker.config.cluster)
    port = urlsplit((document or {}).get("brokerServiceUrl") or "").port
    if port is None:
        raise ServiceNotReadyError("the broker is starting")
    return port


async def list_brokers(call: Call) -> object:
    cluster = call.params.get("cluster")
    if cluster is not None and cluster != call.broker.config.cluster:
        raise NotHereError(f"cluster {cluster} has no broker known here")
    return [await broker_id(call)]


async def leader(call: Call) -> object:
    own = await broker_id(call)
    return {"serviceUrl": f"http://{own}", "brokerId": own}


async def health(call: Call) -> object:
    # Calls that come while a check runs share its result.
    await call.service.checks.run("health", lambda: check_health(call.broker))
    return Text("ok")


async def ready(call: Call) -> object:
    await broker_port(call)
    if call.broker.draining:
        raise ServiceNotReadyError("the broker is shutting down")
    return Text("ok")


async def version(call: Call) -> object:
    return Text(__version__)


ROUTES: list[Route] = [
    ("GET", "/admin/v2/clusters", list_clusters),
    ("GET", "/admin/v2/clusters/{cluster}", get_cluster),
    ("PUT", "/admin/v2/clusters/{cluster}", create_cluster),
    ("POST", "/admin/v2/clusters/{cluster}", update_cluster),
    ("DELETE", "/admin/v2/clusters/{cluster}", delete_cluster),
    ("GET", "/admin/v2/clusters/{cluster}/failureDomains", empty_map),
    ("GET", "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies", empty_map),
    ("GET", "/admin/v2/brokers", list_brokers),
    ("GET", "/admin/v2/brokers/health", health),
    ("GET", "/admin/v2/brokers/ready", ready),
    ("GET", "/admin/v2/brokers/version", version),
    ("GET", "/admin/v2/brokers/leaderBroker", leader),
    ("GET", "/admin/v2/brokers/{cluster}", list_brokers),
]
