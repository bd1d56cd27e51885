"""`/admin/v2/clusters`: clusters, their peers, and the redirection of their clients."""

from __future__ import annotations

import json
import re
from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError, NotImplementedHereError
from magnetar.broker.errors import ConflictError, PreconditionFailedError
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError

_C: Final = "/admin/v2/clusters/{cluster}"
_PEERS: Final = "peerClusterNames"
_FOR_EVERYBODY: Final = frozenset(
    (
        *("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", _PEERS),
        *("proxyServiceUrl", "proxyProtocol", "listenerName", "brokerClientTlsEnabled"),
        *("migrated", "migratedClusterUrl"),
    )
)
"""Fields that clients need to find a cluster."""
_PASSWORD: Final = re.compile(r"://[^/@]*@")


async def list_clusters(call: Call) -> object:
    """Names of all clusters."""
    return await call.broker.policies.clusters()


async def get_cluster(call: Call) -> Policies:
    """Addresses of a cluster; superusers see all of its document."""
    document, guard = await _document(call), call.broker.guard
    if guard is None or (call.identity is not None and guard.is_superuser(call.identity)):
        return document
    # By what is known to be harmless: the rest holds credentials, or may come to hold them.
    return {
        name: _PASSWORD.sub("://", value) if isinstance(value, str) else value
        for name, value in document.items()
        if name in _FOR_EVERYBODY
    }


async def _document(call: Call) -> Policies:
    document = await call.broker.policies.cluster_document(call.name("cluster"))
    if document is None:
        raise NotHereError("Cluster does not exist", remedy=f"there is no cluster {call.params['cluster']}")
    return document


async def create_cluster(call: Call) -> object:
    """Adds a cluster."""
    name = call.name("cluster")
    value = json.dumps(call.json_object()).encode()
    try:
        await call.broker.store.put(keys.cluster(name), value, expected_version=MUST_NOT_EXIST)
    except BadVersionError as error:
        raise ConflictError("Cluster already exists") from error
    return None


async def update_cluster(call: Call) -> object:
    """Replaces the addresses of a cluster; its peers stay."""
    kept = (await _document(call)).get(_PEERS)
    document = call.json_object()
    if kept is not None:
        document.setdefault(_PEERS, kept)
    await call.broker.store.put(keys.cluster(call.name("cluster")), json.dumps(document).encode())
    return None


async def delete_cluster(call: Call) -> object:
    """Deletes a cluster that is neither this broker's own nor a peer of another."""
    name = call.name("cluster")
    if name == call.broker.config.cluster:
        raise PreconditionFailedError(f"{name} is the cluster of this broker")
    await _document(call)
    for other in await call.broker.policies.clusters():
        document = await call.broker.policies.cluster_document(other) or {}
        if name in (document.get(_PEERS) or ()):
            raise PreconditionFailedError(f"cluster {name} is a peer of {other}")
    await call.broker.store.delete_recursive(keys.cluster(name))
    return None


async def get_peers(call: Call) -> object:
    """Peer clusters of a cluster."""
    return (await _document(call)).get(_PEERS) or []


async def set_peers(call: Call) -> None:
    """Sets the peer clusters of a cluster."""
    name, peers = call.name("cluster"), call.json() or []
    await _document(call)
    if not isinstance(peers, list) or not all(isinstance(peer, str) for peer in peers):
        raise BadRequestError("the body must be a list of clusters")
    wanted = sorted({peer for peer in peers if peer})
    unknown = set(wanted) - set(await call.broker.policies.clusters())
    if unknown:
        raise PreconditionFailedError(f"Peer cluster {min(unknown)} does not exist")
    if name in wanted:
        raise PreconditionFailedError(f"{name} itself can't be part of peer-list")

    def change(document: Policies) -> None:
        document[_PEERS] = wanted

    await call.broker.policies.update_document(keys.cluster(name), change)


async def get_migration(call: Call) -> object:
    """The cluster to which a cluster's clients are directed."""
    await _document(call)
    found = await call.broker.policies.document(keys.cluster_policies(call.name("cluster")))
    return found or {"migrated": False, "migratedClusterUrl": None}


async def set_migration(call: Call) -> None:
    """Sets the cluster to which another cluster's clients are directed; not for this broker's own cluster."""
    name = call.name("cluster")
    await _document(call)
    migrated, urls = call.flag("migrated"), call.json_object()
    if name == call.broker.config.cluster and migrated:
        raise NotImplementedHereError("this broker does not send its clients to another cluster")

    def change(document: Policies) -> None:
        document.update({"migrated": migrated, "migratedClusterUrl": urls})

    await call.broker.policies.update_document(keys.cluster_policies(name), change)


ROUTES: list[Route] = [
    ("GET", "/admin/v2/clusters", list_clusters),
    ("GET", _C, get_cluster),
    ("PUT", _C, create_cluster),
    ("POST", _C, update_cluster),
    ("DELETE", _C, delete_cluster),
    ("GET", f"{_C}/peers", get_peers),
    ("POST", f"{_C}/peers", set_peers),
    ("GET", f"{_C}/migrate", get_migration),
    ("POST", f"{_C}/migrate", set_migration),
]
