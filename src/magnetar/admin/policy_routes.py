"""Policies of namespaces and topics: those that take effect can be read, set and removed.

A policy that Pulsar has and this broker does not act on is answered 501: storing it would let an operator
believe in a limit that nobody keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.admin.call import Call, Handler, Route, whole
from magnetar.admin.errors import BadRequestError, NotImplementedHereError
from magnetar.admin.topics import PARTITIONS_MAX
from magnetar.broker.compaction.room import THRESHOLD_POLICY
from magnetar.broker.creation import (
    NON_PARTITIONED,
    PARTITIONED,
    SUBSCRIPTIONS_POLICY,
    TOPICS_POLICY,
)
from magnetar.broker.dedup.state import SNAPSHOT_INTERVAL_POLICY
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.inactive.policy import INACTIVE_POLICY, DeleteMode
from magnetar.broker.limits.backlog import fits_retention
from magnetar.broker.limits.limits import DELAYED_DELIVERY_POLICY, QUOTAS_OF_NAMESPACE, QUOTAS_OF_TOPIC
from magnetar.broker.policies import Policies
from magnetar.schemas.compatibility import Strategy

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

COMPATIBILITY_STRATEGIES: Final = tuple(strategy.value for strategy in Strategy)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadRequestError("the body must be true or false")
    return value


def _seconds(value: object) -> int:
    number = whole(value)
    if number is None or not 0 <= number < 1 << 31:
        raise BadRequestError("the body must be a number of seconds")
    return number


def _bytes(value: object) -> int:
    number = whole(value)
    if number is None or not 0 <= number < 1 << 63:
        raise BadRequestError("the body must be a number of bytes")
    return number


def _retention(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise BadRequestError('the body must be {"retentionTimeInMinutes": n, "retentionSizeInMB": n}')
    limits = {}
    for key in ("retentionTimeInMinutes", "retentionSizeInMB"):
        number = whole(value.get(key, 0))
        if number is None or not -1 <= number < 1 << 31:
            raise BadRequestError(f"{key} must be a number from -1 (without limit) up")
        limits[key] = number
    if (limits["retentionTimeInMinutes"] == 0) != (limits["retentionSizeInMB"] == 0):
        raise PreconditionFailedError(
            "time and size of a retention must both be 0 or both be set: one 0 keeps nothing"
        )
    return limits


def _retention_above_quotas(value: Any, own: Policies, namespace: Policies) -> None:
    quotas = {**(namespace.get(QUOTAS_OF_NAMESPACE) or {}), **(own.get(QUOTAS_OF_TOPIC) or {})}
    if not all(fits_retention(quota, value) for quota in quotas.values()):
        raise PreconditionFailedError("the retention must exceed the backlog quota; lower the quota first")


def _topic_creation(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("allowAutoTopicCreation"), bool):
        raise BadRequestError('the body must be {"allowAutoTopicCreation": true or false, ...}')
    kind, partitions = value.get("topicType", NON_PARTITIONED), whole(value.get("defaultNumPartitions"))
    if kind not in (PARTITIONED, NON_PARTITIONED):
        raise PreconditionFailedError(f"topicType must be {PARTITIONED} or {NON_PARTITIONED}")
    if kind == PARTITIONED and not 0 < (partitions or 0) <= PARTITIONS_MAX:
        raise PreconditionFailedError(f"defaultNumPartitions must be from 1 to {PARTITIONS_MAX}")
    if kind == NON_PARTITIONED and partitions:
        raise PreconditionFailedError("defaultNumPartitions is for partitioned topics only")
    return {
        "allowAutoTopicCreation": value["allowAutoTopicCreation"],
        "topicType": kind,
        **({"defaultNumPartitions": partitions} if kind == PARTITIONED else {}),
    }


def _inactive_topics(value: object) -> dict[str, Any]:
    modes = [mode.value for mode in DeleteMode]
    if not isinstance(value, dict) or value.get("inactiveTopicDeleteMode", modes[0]) not in modes:
        raise BadRequestError(f"inactiveTopicDeleteMode must be one of {', '.join(modes)}")
    seconds, delete = whole(value.get("maxInactiveDurationSeconds")), value.get("deleteWhileInactive")
    if not isinstance(delete, bool) or seconds is None:
        raise BadRequestError("deleteWhileInactive must be a boolean, maxInactiveDurationSeconds a number")
    if not 0 < seconds < 1 << 31:
        raise PreconditionFailedError("maxInactiveDurationSeconds must be at least 1")
    return {
        "inactiveTopicDeleteMode": value.get("inactiveTopicDeleteMode", modes[0]),
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": delete,
    }


def _subscription_creation(value: object) -> dict[str, bool]:
    allowed = value.get("allowAutoSubscriptionCreation") if isinstance(value, dict) else None
    if not isinstance(allowed, bool):
        raise BadRequestError('the body must be {"allowAutoSubscriptionCreation": true or false}')
    return {"allowAutoSubscriptionCreation": allowed}


def _delayed_delivery(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("active"), bool):
        raise BadRequestError('the body must be {"active": true or false, "tickTime": ms}')
    tick_ms = whole(value.get("tickTime", 1000))
    if tick_ms is None or not 0 < tick_ms < 1 << 31:
        raise BadRequestError("tickTime must be a number of milliseconds")
    return {"active": value["active"], "tickTime": tick_ms}


def _strategy(value: object) -> str:
    if value not in COMPATIBILITY_STRATEGIES:
        raise BadRequestError(f"the body must be one of {', '.join(COMPATIBILITY_STRATEGIES)}")
    return str(value)


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy and where it stands in the stored document."""

    key: str
    read: Callable[[object], Any]
    """Checks a body. Raises BadRequestError."""
    default: Any = None
    """What GET answers when it is not set; None: 204."""
    check: Callable[[Any, Policies, Policies], None] | None = None
    """Whether a value suits what is set beside it, in the topic's document and the namespace's. Raises
    PreconditionFailedError."""


_DEDUPLICATION: Final = _Policy("deduplicationEnabled", _boolean)
_DEDUPLICATION_INTERVAL: Final = _Policy(SNAPSHOT_INTERVAL_POLICY, _seconds)
_COMPACTION: Final = _Policy(THRESHOLD_POLICY, _bytes)
_DELAYED_DELIVERY: Final = _Policy(DELAYED_DELIVERY_POLICY, _delayed_delivery)
_RETENTION: Final = _Policy("retention_policies", _retention, check=_retention_above_quotas)
_COMPATIBILITY: Final = _Policy("schema_compatibility_strategy", _strategy, "UNDEFINED")
_TOPIC_CREATION: Final = _Policy(TOPICS_POLICY, _topic_creation)
_INACTIVE: Final = _Policy(INACTIVE_POLICY, _inactive_topics)
_SUBSCRIPTION_CREATION: Final = _Policy(SUBSCRIPTIONS_POLICY, _subscription_creation)
_AUTO_UPDATE: Final = _Policy("is_allow_auto_update_schema", _boolean, default=True)
_VALIDATION: Final = _Policy("schema_validation_enforced", _boolean, default=False)


def _setter(key: str, value: Any) -> Callable[[Policies], None]:
    def change(document: Policies) -> None:
        document[key] = value

    return change


def _remover(key: str) -> Callable[[Policies], None]:
    def change(document: Policies) -> None:
        document.pop(key, None)

    return change


def _of_namespace(policy: _Policy) -> tuple[Handler, Handler, Handler]:
    async def get(call: Call) -> object:
        document = await call.broker.policies.namespace(call.namespace())
        return document.get(policy.key, policy.default)

    async def put(call: Call) -> None:
        value = policy.read(call.json())
        if policy.check is not None:
            policy.check(value, {}, await call.broker.policies.namespace(call.namespace()))
        await call.broker.policies.update_namespace(call.namespace(), _setter(policy.key, value))
        await call.broker.apply_policies()

    async def delete(call: Call) -> None:
        await call.broker.policies.update_namespace(call.namespace(), _remover(policy.key))
        await call.broker.apply_policies()

    return get, put, delete


def _of_topic(policy: _Policy) -> tuple[Handler, Handler, Handler]:
    async def get(call: Call) -> object:
        topic = call.topic()
        await call.broker.check_name(topic)
        own = await call.broker.policies.topic_policies(topic)
        if policy.key in own or not call.flag("applied"):
            return own.get(policy.key, policy.default)
        document = await call.broker.policies.namespace(topic.namespace_name)
        return document.get(policy.key, policy.default)

    async def put(call: Call) -> None:
        value = policy.read(call.json())
        topic = call.topic()
        namespace = await call.broker.policies.namespace(topic.namespace_name)
        if policy.check is not None:
            policy.check(value, await call.broker.policies.topic_policies(topic), namespace)
        await call.broker.policies.update_topic(topic, _setter(policy.key, value))
        await call.broker.apply_policies()

    async def delete(call: Call) -> None:
        topic = call.topic()
        await call.broker.check_name(topic)
        await call.broker.policies.update_topic(topic, _remover(policy.key))
        await call.broker.apply_policies()

    return get, put, delete


def _routes(path: str, handlers: tuple[Handler, Handler, Handler], set_method: str = "POST") -> list[Route]:
    get, put, delete = handlers
    return [("GET", path, get), (set_method, path, put), ("DELETE", path, delete)]


_NAMESPACE_ONLY: Final = (
    "antiAffinity",
    "schemaAutoUpdateCompatibilityStrategy",
    "resourcegroup",
    "migration",
    "allowedClusters",
)
_TOPIC_ONLY: Final = (
    "persistence",
    "replication",
    "shadowTopics",
    "truncate",
)
_BOTH: Final = (
    "entryFilters",
    "dispatcherPauseOnAckStatePersistent",
    "replicatorDispatchRate",
)


_READ_AS_UNSET: Final = frozenset(
    (
        *_BOTH,
        "antiAffinity",
        "persistence",
        "replication",
        "resourcegroup",
        "shadowTopics",
    )
)
"""Of these it is true that nothing is set: tools that show everything can ask."""


async def _unset(call: Call) -> None:
    await call.broker.policies.namespace(call.namespace())


def _only_read(path: str, name: str) -> list[Route]:
    read: list[Route] = [("GET", f"{path}/{name}", _unset)] if name in _READ_AS_UNSET else []
    return [*read, ("*", f"{path}/{name}", _not_offered)]


async def _not_offered(call: Call) -> object:
    raise NotImplementedHereError("this policy or operation is not offered by this broker yet")


ROUTES: list[Route] = [
    *_routes(f"{_N}/deduplication", _of_namespace(_DEDUPLICATION)),
    *_routes(f"{_N}/deduplicationSnapshotInterval", _of_namespace(_DEDUPLICATION_INTERVAL)),
    *_routes(f"{_T}/deduplicationSnapshotInterval", _of_topic(_DEDUPLICATION_INTERVAL)),
    *_routes(f"{_N}/autoTopicCreation", _of_namespace(_TOPIC_CREATION)),
    *_routes(f"{_N}/inactiveTopicPolicies", _of_namespace(_INACTIVE)),
    *_routes(f"{_T}/inactiveTopicPolicies", _of_topic(_INACTIVE)),
    *_routes(f"{_N}/autoSubscriptionCreation", _of_namespace(_SUBSCRIPTION_CREATION)),
    *_routes(f"{_T}/autoSubscriptionCreation", _of_topic(_SUBSCRIPTION_CREATION)),
    *_routes(f"{_N}/compactionThreshold", _of_namespace(_COMPACTION), "PUT"),
    *_routes(f"{_T}/compactionThreshold", _of_topic(_COMPACTION)),
    *_routes(f"{_N}/delayedDelivery", _of_namespace(_DELAYED_DELIVERY)),
    *_routes(f"{_T}/delayedDelivery", _of_topic(_DELAYED_DELIVERY)),
    *_routes(f"{_N}/retention", _of_namespace(_RETENTION)),
    *_routes(f"{_N}/schemaCompatibilityStrategy", _of_namespace(_COMPATIBILITY), "PUT"),
    *_routes(f"{_N}/isAllowAutoUpdateSchema", _of_namespace(_AUTO_UPDATE)),
    *_routes(f"{_N}/schemaValidationEnforced", _of_namespace(_VALIDATION)),
    *_routes(f"{_T}/schemaCompatibilityStrategy", _of_topic(_COMPATIBILITY), "PUT"),
    *_routes(f"{_T}/schemaValidationEnforced", _of_topic(_VALIDATION)),
    *_routes(f"{_T}/deduplicationEnabled", _of_topic(_DEDUPLICATION)),
    *_routes(f"{_T}/deduplication", _of_topic(_DEDUPLICATION)),
    *_routes(f"{_T}/retention", _of_topic(_RETENTION)),
    *(route for name in (*_NAMESPACE_ONLY, *_BOTH) for route in _only_read(_N, name)),
    *(route for name in (*_TOPIC_ONLY, *_BOTH) for route in _only_read(_T, name)),
]
