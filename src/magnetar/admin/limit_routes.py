"""Limits of namespaces and topics: numbers, rates, subscription types, encryption, backlog quotas.

They are stored under the names that `broker/limits/limits.py` reads and take effect at once, on clients that
are connected too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.admin.call import Call, Handler, Route, natural, whole
from magnetar.admin.errors import BadRequestError
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.inactive.expiry import EXPIRATION_POLICY
from magnetar.broker.limits.backlog import QuotaKind, QuotaPolicy, fits_retention
from magnetar.broker.limits.limits import ALL_TYPES, QUOTAS_OF_NAMESPACE, QUOTAS_OF_TOPIC
from magnetar.broker.policies import Policies

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_NUMBER_MAX: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit of one level."""

    path: str
    """Last part of the route."""
    key: str
    """In the stored document."""
    read: Callable[[Call], Any]
    """Checks a body. Raises BadRequestError, PreconditionFailedError."""
    inherited: str | None = None
    """Of a topic's limit: its key in the namespace's document, for `applied`."""
    by_cluster: bool = False
    """Whether the (namespace's) document holds it by cluster."""


def _number(call: Call) -> int:
    value = whole(call.json())
    if value is None or value >= _NUMBER_MAX:
        raise BadRequestError("the body must be a number")
    if value < 0:
        raise PreconditionFailedError("a limit must be 0 or more; 0 is without limit")
    return value


def _message_size(call: Call) -> int:
    value = _number(call)
    most = call.broker.config.message_bytes_max
    if value > most:
        raise PreconditionFailedError(f"no topic may take messages larger than the broker does: {most} bytes")
    return value


def _ttl(call: Call) -> int:
    """In the body, or as Pulsar's clients send a topic's: in the query."""
    text = call.query.get("messageTTL")
    return _number(call) if text is None else natural(text, "messageTTL")


def _boolean(call: Call) -> bool:
    return call.json_bool()


def _types(call: Call) -> list[str]:
    value = call.json()
    names = [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequestError("the body must be a list of subscription types")
    unknown = set(names) - ALL_TYPES
    if unknown:
        raise BadRequestError(f"{sorted(unknown)[0]!r} is none of {', '.join(sorted(ALL_TYPES))}")
    return sorted(set(names))


def _rate(*numbers: str) -> Callable[[Call], dict[str, Any]]:
    def read(call: Call) -> dict[str, Any]:
        document = call.json_object()
        for name in (*numbers, "ratePeriodInSecond"):
            value = whole(document.get(name, -1))
            if value is None or not -1 <= value < _NUMBER_MAX:
                raise BadRequestError(f"{name} must be a number, -1 is without limit")
            if name in document:
                document[name] = value
        return document

    return read


_DISPATCH: Final = _rate("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
_PUBLISH: Final = _rate("publishThrottlingRateInMsg", "publishThrottlingRateInByte")
_SUBSCRIBE: Final = _rate("subscribeThrottlingRatePerConsumer")

_OF_NAMESPACE: Final = (
    _Limit("encryptionRequired", "encryption_required", _boolean),
    _Limit("subscriptionTypesEnabled", "subscription_types_enabled", _types),
    _Limit("maxProducersPerTopic", "max_producers_per_topic", _number),
    _Limit("maxConsumersPerTopic", "max_consumers_per_topic", _number),
    _Limit("maxConsumersPerSubscription", "max_consumers_per_subscription", _number),
    _Limit("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", _number),
    _Limit("maxTopicsPerNamespace", "max_topics_per_namespace", _number),
    _Limit("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", _number),
    _Limit("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription", _number),
    _Limit("messageTTL", "message_ttl_in_seconds", _ttl),
    _Limit("subscriptionExpirationTime", EXPIRATION_POLICY, _number),
    _Limit("publishRate", "publishMaxMessageRate", _PUBLISH, by_cluster=True),
    _Limit("dispatchRate", "topicDispatchRate", _DISPATCH, by_cluster=True),
    _Limit("subscriptionDispatchRate", "subscriptionDispatchRate", _DISPATCH, by_cluster=True),
    _Limit("subscribeRate", "clusterSubscribeRate", _SUBSCRIBE, by_cluster=True),
)
_OF_TOPIC: Final = (
    _Limit("subscriptionTypesEnabled", "subscriptionTypesEnabled", _types, "subscription_types_enabled"),
    _Limit("maxProducers", "maxProducerPerTopic", _number, "max_producers_per_topic"),
    _Limit("maxConsumers", "maxConsumerPerTopic", _number, "max_consumers_per_topic"),
    _Limit(
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        _number,
        "max_consumers_per_subscription",
    ),
    _Limit("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", _number, "max_subscriptions_per_topic"),
    _Limit("maxMessageSize", "maxMessageSize", _message_size),
    _Limit(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnConsumer",
        _number,
        "max_unacked_messages_per_consumer",
    ),
    _Limit(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesOnSubscription",
        _number,
        "max_unacked_messages_per_subscription",
    ),
    _Limit("messageTTL", "messageTTLInSeconds", _ttl, "message_ttl_in_seconds"),
    _Limit("publishRate", "publishRate", _PUBLISH, "publishMaxMessageRate", by_cluster=True),
    _Limit("dispatchRate", "dispatchRate", _DISPATCH, "topicDispatchRate", by_cluster=True),
    _Limit(
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        _DISPATCH,
        "subscriptionDispatchRate",
        by_cluster=True,
    ),
    _Limit("subscribeRate", "subscribeRate", _SUBSCRIBE, "clusterSubscribeRate", by_cluster=True),
)


async def _change_namespace(call: Call, change: Callable[[Policies], None]) -> None:
    await call.broker.policies.update_namespace(call.namespace(), change)
    await call.broker.apply_policies()


async def _change_topic(call: Call, change: Callable[[Policies], None]) -> None:
    topic = call.topic()
    await call.broker.check_name(topic)
    await call.broker.policies.update_topic(topic, change)
    await call.broker.apply_policies()


def _of_namespace(limit: _Limit) -> list[Route]:
    async def get(call: Call) -> object:
        found = (await call.broker.policies.namespace(call.namespace())).get(limit.key)
        return (found or {}).get(call.broker.config.cluster) if limit.by_cluster else found

    async def put(call: Call) -> None:
        value = limit.read(call)

        def change(document: Policies) -> None:
            if limit.by_cluster:
                document[limit.key] = {**(document.get(limit.key) or {}), call.broker.config.cluster: value}
            else:
                document[limit.key] = value

        await _change_namespace(call, change)

    async def delete(call: Call) -> None:
        await _change_namespace(call, lambda document: _forget(document, limit.key))

    return _routes(f"{_N}/{limit.path}", get, put, delete)


def _of_topic(limit: _Limit) -> list[Route]:
    async def get(call: Call) -> object:
        topic = call.topic()
        await call.broker.check_name(topic)
        own = await call.broker.policies.topic_policies(topic)
        if limit.key in own or limit.inherited is None or not call.flag("applied"):
            return own.get(limit.key)
        found = (await call.broker.policies.namespace(topic.namespace_name)).get(limit.inherited)
        return (found or {}).get(call.broker.config.cluster) if limit.by_cluster else found

    async def put(call: Call) -> None:
        value = limit.read(call)
        await _change_topic(call, lambda document: _put(document, limit.key, value))

    async def delete(call: Call) -> None:
        await _change_topic(call, lambda document: _forget(document, limit.key))

    return _routes(f"{_T}/{limit.path}", get, put, delete)


def _put(document: Policies, key: str, value: Any) -> None:
    document[key] = value


def _forget(document: Policies, key: str) -> None:
    document.pop(key, None)


def _routes(path: str, get: Handler, put: Handler, delete: Handler) -> list[Route]:
    return [("GET", path, get), ("POST", path, put), ("DELETE", path, delete)]


# -- backlog quotas ----------------------------------------------------------------------------------


def _kind(call: Call) -> QuotaKind:
    text = call.query.get("backlogQuotaType", QuotaKind.SIZE)
    try:
        return QuotaKind(text)
    except ValueError:
        raise BadRequestError(f"backlogQuotaType must be one of {', '.join(QuotaKind)}") from None


def _quota(call: Call, retention: Any) -> dict[str, Any]:
    document = call.json_object()
    given = {"limitSize": document.get("limitSize", document.get("limit", -1))}
    given["limitTime"] = document.get("limitTime", -1)
    numbers = {}
    for name, value in given.items():
        number = whole(value)
        if number is None or not -1 <= number < _NUMBER_MAX:
            raise BadRequestError(f"{name} must be a number, -1 is without limit")
        numbers[name] = number
    if document.get("policy") not in list(QuotaPolicy):
        raise BadRequestError(f"policy must be one of {', '.join(QuotaPolicy)}")
    if not fits_retention(numbers, retention):
        raise PreconditionFailedError("the backlog quota exceeds the retention; raise the retention first")
    return {**numbers, "policy": document["policy"]}


async def _namespace_quotas(call: Call) -> object:
    return (await call.broker.policies.namespace(call.namespace())).get(QUOTAS_OF_NAMESPACE) or {}


async def _put_namespace_quota(call: Call) -> None:
    document = await call.broker.policies.namespace(call.namespace())
    kind, quota = _kind(call), _quota(call, document.get("retention_policies"))
    await _change_namespace(call, lambda found: _put_quota(found, QUOTAS_OF_NAMESPACE, kind, quota))


async def _delete_namespace_quota(call: Call) -> None:
    kind = _kind(call)
    await _change_namespace(call, lambda found: _put_quota(found, QUOTAS_OF_NAMESPACE, kind, None))


async def _topic_quotas(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    own = (await call.broker.policies.topic_policies(topic)).get(QUOTAS_OF_TOPIC) or {}
    if not call.flag("applied"):
        return own
    document = await call.broker.policies.namespace(topic.namespace_name)
    return {**(document.get(QUOTAS_OF_NAMESPACE) or {}), **own}


async def _put_topic_quota(call: Call) -> None:
    topic = call.topic()
    own = await call.broker.policies.topic_policies(topic)
    inherited = await call.broker.policies.namespace(topic.namespace_name)
    retention = own.get("retention_policies", inherited.get("retention_policies"))
    kind, quota = _kind(call), _quota(call, retention)
    await _change_topic(call, lambda found: _put_quota(found, QUOTAS_OF_TOPIC, kind, quota))


async def _delete_topic_quota(call: Call) -> None:
    kind = _kind(call)
    await _change_topic(call, lambda found: _put_quota(found, QUOTAS_OF_TOPIC, kind, None))


def _put_quota(document: Policies, key: str, kind: QuotaKind, quota: dict[str, Any] | None) -> None:
    quotas = {known: value for known, value in (document.get(key) or {}).items() if known != kind}
    document[key] = quotas if quota is None else {**quotas, kind.value: quota}


ROUTES: list[Route] = [
    *(route for limit in _OF_NAMESPACE for route in _of_namespace(limit)),
    *(route for limit in _OF_TOPIC for route in _of_topic(limit)),
    ("GET", f"{_N}/backlogQuotaMap", _namespace_quotas),
    ("POST", f"{_N}/backlogQuota", _put_namespace_quota),
    ("DELETE", f"{_N}/backlogQuota", _delete_namespace_quota),
    ("GET", f"{_T}/backlogQuotaMap", _topic_quotas),
    ("POST", f"{_T}/backlogQuota", _put_topic_quota),
    ("DELETE", f"{_T}/backlogQuota", _delete_topic_quota),
]
