"""Routes of declared policies: read, set and remove, for a namespace and for a topic.

A topic's policy applies to this cluster (the default) or, with `?isGlobal=true`, to all clusters; the first
wins. `?applied=true` returns the value in force, whatever its source.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from magnetar.admin.calls.call import Call, Operation, Route
from magnetar.admin.policies import of_subscription, quotas
from magnetar.admin.policies.declared import Policy
from magnetar.admin.policies.stored import TOPIC_QUERY, N, T, change_namespace, change_topic, own_of
from magnetar.admin.policies.table import ALL
from magnetar.broker.errors import PreconditionFailedError, TopicNotFoundError


def _of_namespace(policy: Policy) -> Iterator[Route]:
    kind = policy.kind

    async def get(call: Call) -> object:
        document = await call.broker.policies.namespace(call.namespace())
        found = policy.in_namespace(document, call.broker.config.cluster)
        return policy.unset if found is None else found

    async def put(call: Call) -> None:
        namespace = await call.broker.policies.namespace(call.namespace())
        value = kind.read(call)
        if policy.check is not None and value is not None:
            policy.check(value, {}, namespace)
        cluster = call.broker.config.cluster
        await change_namespace(call, lambda document: policy.store_in_namespace(document, cluster, value))

    async def delete(call: Call) -> None:
        cluster = call.broker.config.cluster
        await change_namespace(call, lambda document: policy.store_in_namespace(document, cluster, None))

    path = f"{N}/{policy.of_namespace}"
    yield "GET", path, Operation(get, answer=kind.schema)
    yield "PUT" if policy.put else "POST", path, Operation(put, body=kind.schema)
    yield "DELETE", path, Operation(delete)


def _of_topic(policy: Policy) -> Iterator[Route]:
    kind = policy.kind_of_topic or policy.kind

    async def get(call: Call) -> object:
        if call.flag("applied"):
            topic = call.topic()
            namespace = await call.broker.policies.namespace(topic.namespace_name)
            own = await call.broker.policies.topic_policies(topic)
            found = policy.applied(own, namespace, call.broker.config)
        else:
            found = (await own_of(call)).get(policy.topic_key)
        return policy.unset if found is None else found

    async def put(call: Call) -> None:
        value = kind.read(call)
        topic = call.topic()
        namespace = await call.broker.policies.namespace(topic.namespace_name)
        if policy.check is not None and value is not None:
            policy.check(value, await call.broker.policies.topic_policies(topic), namespace)
        await change_topic(call, lambda document: policy.store_in_topic(document, value))

    async def delete(call: Call) -> None:
        await change_topic(call, lambda document: policy.store_in_topic(document, None))

    path = f"{T}/{policy.of_topic}"
    both = policy.of_namespace is not None
    yield "GET", path, Operation(get, answer=kind.schema, query=TOPIC_QUERY)
    yield "POST" if both or not policy.put else "PUT", path, Operation(put, body=kind.schema)
    yield "DELETE", path, Operation(delete)


def _where_the_topic_is(route: Route) -> Route:
    """Restricts a route to existing topics, since a policy must not wait for a topic that is created
    later."""
    method, path, handler = route
    if not path.startswith(T):
        return route

    @functools.wraps(handler.handler if isinstance(handler, Operation) else handler)
    async def checked(call: Call) -> object:
        topic = call.topic()
        if topic.partition >= 0:
            raise PreconditionFailedError(
                "Not allowed to set/get topic policy for a partition", remedy=f"name {topic.base}"
            )
        await call.broker.check_name(topic)
        if not await call.broker.policies.partitions(topic) and not await call.broker.exists(topic):
            raise TopicNotFoundError(
                f"Topic {topic} not found", remedy="create it first, or set the policy of its namespace"
            )
        return await handler(call)

    return method, path, replace(handler, handler=checked) if isinstance(handler, Operation) else checked


async def remove_all_of_topic(call: Call) -> None:
    """Removes all policies of a topic, for this cluster and for all clusters."""
    topic = call.topic()
    await call.broker.check_name(topic)
    await call.broker.policies.forget_topic(topic)
    await call.broker.apply_policies()


ROUTES: list[Route] = [
    _where_the_topic_is(route)
    for route in (
        *(route for policy in ALL if policy.of_namespace is not None for route in _of_namespace(policy)),
        *(route for policy in ALL if policy.of_topic is not None for route in _of_topic(policy)),
        *quotas.ROUTES,
        ("DELETE", f"{T}/policies", remove_all_of_topic),
        *of_subscription.ROUTES,
    )
]
