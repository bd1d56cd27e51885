"""Policies of single subscriptions, and the clusters of a topic or namespace."""

from __future__ import annotations

from magnetar.admin.calls.call import Call, Operation, Route
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies import policy_documents as documents
from magnetar.admin.policies.stored import TOPIC_QUERY, N, T, change_namespace, change_topic, own_of
from magnetar.broker.errors import PreconditionFailedError, UnsupportedError
from magnetar.broker.limits.limits import SUBSCRIPTION_POLICIES, SUBSCRIPTION_RATE
from magnetar.broker.policies.policies import Policies

_RATE = f"{T}/{{subscription}}/dispatchRate"
_CLUSTERS = {"type": "array", "items": {"type": "string"}}
_REPLICATION = "replication_clusters"
_ALLOWED = "allowed_clusters"


async def get_rate(call: Call) -> object:
    """Dispatch rate of a subscription."""
    if call.flag("applied"):
        own = await call.broker.policies.topic_policies(call.topic())
    else:
        own = await own_of(call)
    return ((own.get(SUBSCRIPTION_POLICIES) or {}).get(call.params["subscription"]) or {}).get(
        SUBSCRIPTION_RATE
    )


async def set_rate(call: Call) -> None:
    """Sets the dispatch rate of a subscription; in force on return."""
    value, name = documents.DISPATCH.read(call), call.params["subscription"]

    def change(document: Policies) -> None:
        of_all = dict(document.get(SUBSCRIPTION_POLICIES) or {})
        of_all[name] = {**(of_all.get(name) or {}), SUBSCRIPTION_RATE: value}
        document[SUBSCRIPTION_POLICIES] = of_all

    await change_topic(call, change)


async def remove_rate(call: Call) -> None:
    """Removes the dispatch rate of a subscription: that of all subscriptions applies again."""
    name = call.params["subscription"]

    def change(document: Policies) -> None:
        of_all = dict(document.get(SUBSCRIPTION_POLICIES) or {})
        of_all.pop(name, None)
        document[SUBSCRIPTION_POLICIES] = of_all

    await change_topic(call, change)


# -- clusters ----------------------------------------------------------------------------------------


async def only_this(call: Call) -> list[str]:
    """The clusters in the body. Only this cluster is allowed, as replication is not supported yet. Raises
    BadRequestError, PreconditionFailedError, UnsupportedError."""
    clusters, own = call.json(), call.broker.config.cluster
    if clusters is None or clusters == []:
        raise PreconditionFailedError("ClusterIds should not be null or empty", remedy=f"send [{own!r}]")
    if not isinstance(clusters, list) or not clusters or not all(isinstance(each, str) for each in clusters):
        raise BadRequestError("the body must be a list of clusters")
    if foreign := sorted({cluster for cluster in clusters if cluster != own}):
        raise UnsupportedError(f"this broker does not replicate to {foreign} yet")
    return [own]


async def get_namespace_clusters(call: Call) -> object:
    """Clusters between which a namespace is replicated."""
    return (await call.broker.policies.namespace(call.namespace())).get(_REPLICATION) or []


async def set_namespace_clusters(call: Call) -> None:
    """Names these clusters: this one alone."""
    await call.broker.policies.namespace(call.namespace())
    wanted = await only_this(call)
    await change_namespace(call, lambda document: document.update({_REPLICATION: wanted}))


async def get_topic_clusters(call: Call) -> object:
    """Clusters between which a topic is replicated."""
    if not call.flag("applied"):
        return (await own_of(call)).get(_REPLICATION)
    own = (await call.broker.policies.topic_policies(call.topic())).get(_REPLICATION)
    return own or (await call.broker.policies.namespace(call.namespace())).get(_REPLICATION) or []


async def set_topic_clusters(call: Call) -> None:
    """Names these clusters: this one alone."""
    wanted = await only_this(call)
    await change_topic(call, lambda document: document.update({_REPLICATION: wanted}))


async def remove_topic_clusters(call: Call) -> None:
    """Removes the clusters of a topic: those of its namespace apply again."""

    def change(document: Policies) -> None:
        document.pop(_REPLICATION, None)

    await change_topic(call, change)


async def get_allowed(call: Call) -> object:
    """Clusters that may serve a namespace's topics."""
    document = await call.broker.policies.namespace(call.namespace())
    return document.get(_ALLOWED) or document.get(_REPLICATION) or []


async def set_allowed(call: Call) -> None:
    """Sets the allowed clusters; this one must be among them, as no other serves the topics."""
    wanted = await allowed_of(call, await call.broker.policies.namespace(call.namespace()))
    await change_namespace(call, lambda found: found.update({_ALLOWED: wanted}))


async def allowed_of(call: Call, document: Policies) -> list[str]:
    """The allowed clusters in the body. Raises BadRequestError, PreconditionFailedError."""
    clusters = call.json()
    if not isinstance(clusters, list) or not clusters or not all(isinstance(each, str) for each in clusters):
        raise BadRequestError("the body must be a list of clusters")
    unknown = set(clusters) - set(await call.broker.policies.clusters())
    if unknown:
        raise PreconditionFailedError(f"clusters do not exist: {', '.join(sorted(unknown))}")
    missing = {call.broker.config.cluster, *(document.get(_REPLICATION) or ())} - set(clusters)
    if missing:
        raise PreconditionFailedError(
            f"the namespace is served and replicated in {', '.join(sorted(missing))}"
        )
    return sorted(set(clusters))


ROUTES: list[Route] = [
    ("GET", _RATE, Operation(get_rate, answer=documents.DISPATCH.schema, query=TOPIC_QUERY)),
    ("POST", _RATE, Operation(set_rate, body=documents.DISPATCH.schema)),
    ("DELETE", _RATE, remove_rate),
    ("GET", f"{N}/replication", Operation(get_namespace_clusters, answer=_CLUSTERS)),
    ("POST", f"{N}/replication", Operation(set_namespace_clusters, body=_CLUSTERS)),
    ("GET", f"{T}/replication", Operation(get_topic_clusters, answer=_CLUSTERS, query=TOPIC_QUERY)),
    ("POST", f"{T}/replication", Operation(set_topic_clusters, body=_CLUSTERS)),
    ("DELETE", f"{T}/replication", remove_topic_clusters),
    ("GET", f"{N}/allowedClusters", Operation(get_allowed, answer=_CLUSTERS)),
    ("POST", f"{N}/allowedClusters", Operation(set_allowed, body=_CLUSTERS)),
]
