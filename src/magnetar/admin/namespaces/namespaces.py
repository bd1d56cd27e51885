"""`/admin/v2/namespaces`: creation and deletion of namespaces, and operations on all their topics."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.namespaces import bundles as bundle_ranges
from magnetar.admin.namespaces import namespace_documents
from magnetar.admin.namespaces.over_bundles import spread_over_bundles, unstored_elsewhere
from magnetar.admin.topics.topic_lists import QUERY, chosen
from magnetar.admin.topics.topics import forget_policies
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, NamespaceName, TopicName
from magnetar.broker.errors import (
    ConflictError,
    NamespaceNotFoundError,
    PreconditionFailedError,
    TopicNotFoundError,
)
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.policies.bundles import ranges
from magnetar.broker.service import Broker
from magnetar.broker.system_topics import is_system
from magnetar.broker.topic.topic import Topic
from magnetar.runtime.tasks import gathered

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


async def list_namespaces(call: Call) -> object:
    tenant = call.name("tenant")
    if await call.broker.policies.tenant(tenant) is None:
        raise NamespaceNotFoundError("Tenant not found", remedy=f"there is no tenant {tenant}")
    return await call.broker.policies.namespaces(tenant)


async def get_namespace(call: Call) -> object:
    return await call.broker.policies.namespace(call.namespace())


async def create_namespace(call: Call) -> object:
    """Creates a namespace with the policies of the body, each of which must be valid for its own route."""
    document = await namespace_documents.read(call)
    async with call.broker.names.making(str(call.namespace())):
        await call.broker.policies.create_namespace(call.namespace(), document)
    return None


async def delete_namespace(call: Call) -> object:
    """Deletes a namespace; with `force` its topics too."""
    force = call.flag("force")
    if not force and not all(map(is_system, await unstored_elsewhere(call))):
        raise ConflictError(_NOT_EMPTY, remedy=_EMPTY_IT)
    await delete_whole(call.broker, call.namespace(), force=force)
    return None


async def delete_whole(broker: Broker, name: NamespaceName, *, force: bool) -> None:
    """Deletes a namespace; with `force` its topics too, else raises ConflictError when it has any.

    With several brokers this one takes all bundles first, because only the owner of a topic can delete it.
    """
    document = await broker.policies.namespace(name)
    async with broker.names.ending(str(name)):
        topics = await _to_delete(broker, name, force=force)
        bundles = [Bundle(name, *bounds) for bounds in ranges(document)]
        if broker.owners is not None:
            await broker.owners.gather(bundles)
            # Their former owners may have made others meanwhile.
            topics = await _to_delete(broker, name, force=force)
            await broker.owners.require(topics)
        for topic in topics:
            try:
                await broker.delete_topic(topic, force=True)
            except TopicNotFoundError:
                # Deleted meanwhile, or a partition of another domain that was never used.
                if topic.partition < 0:
                    await forget_policies(broker, topic)
        for domain in _DOMAINS["ALL"]:
            for topic in await broker.policies.partitioned_topics(name, domain):
                await broker.policies.delete_partitioned(topic)
                await broker.schemas.delete(topic)
                await forget_policies(broker, topic)
        await broker.policies.delete_namespace(name)
        if broker.owners is not None:
            broker.owners.let_go(bundles)


async def _to_delete(broker: Broker, name: NamespaceName, *, force: bool) -> list[TopicName]:
    """All topics of the namespace. Raises ConflictError for topics of users unless `force` is set."""
    topics = [topic for domain in _DOMAINS["ALL"] for topic in await broker.topics_of(name, domain)]
    if not force and not all(is_system(topic) for topic in topics):
        raise ConflictError(_NOT_EMPTY, remedy=_EMPTY_IT)
    return topics


_NOT_EMPTY: Final = "Cannot delete non empty namespace"
_EMPTY_IT: Final = "delete its topics, or add ?force=true"
_DOMAINS: Final = {
    "PERSISTENT": (PERSISTENT,),
    "NON_PERSISTENT": (NON_PERSISTENT,),
    "ALL": (PERSISTENT, NON_PERSISTENT),
}
"""Domains of topics by mode."""


async def list_topics(call: Call) -> object:
    mode = call.query.get("mode", "PERSISTENT").upper()
    if mode not in _DOMAINS:
        raise BadRequestError(f"mode must be PERSISTENT, NON_PERSISTENT or ALL, not {mode!r}")
    name = call.namespace()
    await call.broker.policies.namespace(name)
    found = [topic for domain in _DOMAINS[mode] for topic in await call.broker.topics_of(name, domain)]
    return await chosen(call, name, found)


# -- all topics of a namespace -----------------------------------------------------------------------


async def _in_bundle(call: Call) -> list[TopicName]:
    """Topics of the namespace; only those of the path's bundle, if it names one."""
    name = call.namespace()
    document = await call.broker.policies.namespace(name)
    bundle = call.params.get("bundle")
    if bundle is None:
        return await call.broker.topics_of(name)
    bundle_ranges.check_known(name, bundle, document)
    topics = await call.broker.topics_of(name)
    return [topic for topic in topics if bundle_ranges.within(topic, bundle)]


async def _existing(call: Call) -> list[Topic]:
    names = [name for name in await _in_bundle(call) if await call.broker.exists(name)]
    if call.broker.owners is not None:
        # Before the first is changed: else some would be when another one is refused.
        await call.broker.owners.require(names)
    return [await call.broker.topic(name, create=False) for name in names]


async def unload(call: Call) -> object:
    if call.broker.owners is not None:
        await _move(call)
        return None
    for topic in await _in_bundle(call):
        await call.broker.unload(topic)
    return None


async def _move(call: Call) -> None:
    """Moves bundles from their owners, to the broker `destinationBroker` if it is given."""
    name, owners = call.namespace(), call.broker.owners
    assert owners is not None, "asked before"
    document = await call.broker.policies.namespace(name)
    chosen = call.params.get("bundle")
    if chosen is not None:
        bundle_ranges.check_known(name, chosen, document)
    to = call.query.get("destinationBroker", "")
    if to and to not in owners.peers.reports:
        raise PreconditionFailedError(f"there is no broker {to[:200]}", remedy="magnetar cluster status")
    if to and not owners.peers.takes_bundles(to):
        raise PreconditionFailedError(
            f"broker {to} drains: it takes no bundle", remedy="magnetar cluster undrain"
        )
    wanted = ranges(document) if chosen is None else [bundle_ranges.bounds_of(chosen)]
    await gathered(owners.move(Bundle(name, *bounds), to) for bounds in wanted)


async def clear_backlog(call: Call) -> object:
    wanted = call.params.get("subscription")
    for topic in await _existing(call):
        for subscription in list(topic.subscriptions.values()):
            if subscription.durable and wanted in (None, subscription.name):
                await subscription.skip_all()
    return None


async def unsubscribe(call: Call) -> object:
    wanted = call.params["subscription"]
    for topic in await _existing(call):
        if wanted in topic.subscriptions:
            await topic.delete_subscription(wanted)
    return None


_CLEAR: Final = spread_over_bundles(clear_backlog)
_UNSUBSCRIBE: Final = spread_over_bundles(unsubscribe)

ROUTES: list[Route] = [
    ("GET", "/admin/v2/namespaces/{tenant}", list_namespaces),
    ("GET", _N, get_namespace),
    ("PUT", _N, create_namespace),
    ("DELETE", _N, delete_namespace),
    ("GET", f"{_N}/topics", Operation(list_topics, query=("mode", *QUERY))),
    ("PUT", f"{_N}/unload", unload),
    ("PUT", f"{_N}/{{bundle}}/unload", unload),
    ("POST", f"{_N}/clearBacklog", _CLEAR),
    ("POST", f"{_N}/clearBacklog/{{subscription}}", _CLEAR),
    ("POST", f"{_N}/{{bundle}}/clearBacklog", clear_backlog),
    ("POST", f"{_N}/{{bundle}}/clearBacklog/{{subscription}}", clear_backlog),
    ("POST", f"{_N}/unsubscribe/{{subscription}}", _UNSUBSCRIBE),
    ("POST", f"{_N}/{{bundle}}/unsubscribe/{{subscription}}", unsubscribe),
]
