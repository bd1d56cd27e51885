"""`/admin/v2/brokers`: the active brokers, and their health."""

from __future__ import annotations

import itertools
from typing import Final
from urllib.parse import urlsplit

from magnetar import __version__
from magnetar.admin.brokers.health import check_health
from magnetar.admin.calls.call import Call, Route, Text
from magnetar.admin.calls.errors import NotHereError, NotImplementedHereError
from magnetar.base.names import NamespaceName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.listing import owners_in
from magnetar.metadata import keys

_SHARED: Final = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


async def broker_id(call: Call) -> str:
    """This broker's `host:port` of the admin API, the same for every caller and every address."""
    return call.broker.broker_id


async def broker_port(call: Call) -> int:
    """Port of the binary protocol. Raises ServiceNotReadyError before the broker has told it."""
    if call.broker.owners is not None:
        return call.broker.listeners.plain_port
    document = await call.broker.policies.cluster_document(call.broker.config.cluster)
    port = urlsplit((document or {}).get("brokerServiceUrl") or "").port
    if port is None:
        raise ServiceNotReadyError("the broker is starting")
    return port


async def list_brokers(call: Call) -> list[str]:
    """Live brokers of the cluster."""
    cluster = call.params.get("cluster")
    if cluster is not None and cluster != call.broker.config.cluster:
        raise NotHereError(f"cluster {cluster} has no broker known here")
    owners = call.broker.owners
    return [await broker_id(call)] if owners is None else sorted(owners.peers.reports)


async def leader(call: Call) -> object:
    """The broker that evens the load of all, which is this one when it is alone."""
    owners = call.broker.owners
    if owners is None:
        own = await broker_id(call)
        return {"serviceUrl": f"http://{own}", "brokerId": own}
    leads = "" if owners.balance is None else owners.balance.leader
    report = owners.peers.reports.get(leads)
    if report is None:
        raise NotHereError("Couldn't find leader broker", remedy="one is being elected: ask again")
    at = report.urls.addresses
    return {"serviceUrl": at.http or at.https, "brokerId": leads}


async def owned_namespaces(call: Call) -> object:
    """Bundles that a broker serves."""
    known = await list_brokers(call)
    owners = call.broker.owners
    if owners is not None:
        if call.params["broker"] not in known:
            raise NotHereError(f"broker {call.params['broker'][:100]!r} is not known here")
        served = await owners_in(call.broker.store)
        return {str(bundle): _SHARED for bundle, owner in served.items() if owner == call.params["broker"]}
    if call.params["broker"] != await broker_id(call):
        raise NotHereError(f"broker {call.params['broker'][:100]!r} is not known here")
    policies, found = call.broker.policies, {}
    for tenant in await policies.tenants():
        for namespace in await policies.namespaces(tenant):
            document = await policies.namespace(NamespaceName.parse(namespace))
            bounds = [int(bound, 16) for bound in (document.get("bundles") or {}).get("boundaries") or ()]
            for lower, upper in itertools.pairwise(bounds):
                found[f"{namespace}/{keys.bundle(lower, upper)}"] = _SHARED
    return found


async def internal_configuration(call: Call) -> object:
    """Addresses of the cluster's stores."""
    return {
        "metadataStoreUrl": "embedded",
        "configurationMetadataStoreUrl": "embedded",
        "ledgersRootPath": keys.LEDGERS,
        "bookkeeperMetadataServiceUri": "embedded",
        "stateStorageServiceUrl": None,
    }


async def health(call: Call) -> object:
    """Publishes a message, waits until it is durable, reads it back."""
    # Calls that come while a check runs share its result.
    await call.service.checks.run("health", lambda: check_health(call.broker))
    return Text("ok")


async def ready(call: Call) -> object:
    """Whether the broker serves clients."""
    await broker_port(call)
    if call.broker.draining:
        raise ServiceNotReadyError("the broker is shutting down")
    return Text("ok")


async def version(call: Call) -> object:
    """Version of this program."""
    return Text(__version__)


async def shutdown(call: Call) -> object:
    """Refused: the process is stopped by its service manager."""
    raise NotImplementedHereError(
        "a broker is not stopped over HTTP: send its process SIGTERM, it drains then"
    )


ROUTES: list[Route] = [
    ("GET", "/admin/v2/brokers", list_brokers),
    ("GET", "/admin/v2/brokers/health", health),
    ("GET", "/admin/v2/brokers/ready", ready),
    ("GET", "/admin/v2/brokers/version", version),
    ("GET", "/admin/v2/brokers/leaderBroker", leader),
    ("GET", "/admin/v2/brokers/internal-configuration", internal_configuration),
    ("POST", "/admin/v2/brokers/shutdown", shutdown),
    ("GET", "/admin/v2/brokers/{cluster}", list_brokers),
    ("GET", "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", owned_namespaces),
]
