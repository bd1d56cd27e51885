"""The required shapes of the parts of a stored policies document (pure).

Documents of other programs, or of older versions, may hold anything: a part with another shape than its
readers expect is ignored, as if it was not set, and the rest counts. A part that says how long something is
kept is replaced by one that keeps it: nothing is deleted because a value was damaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

Shape = Callable[[object], bool]
Document = Mapping[str, Any]
"""Policies of a topic or a namespace, as stored. Their parts have the shapes of this module, or are left out
(`without`), so that readers rely on them."""


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1 << 63


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _of(shape: Shape) -> Shape:
    """An object whose values all have this shape."""
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def _is_policy(value: object) -> bool:
    """An object of numbers, texts and switches."""
    return isinstance(value, dict) and all(
        each is None or isinstance(each, bool | str) or _is_number(each) for each in value.values()
    )


def _is_numbers(value: object) -> bool:
    """An object of numbers and switches."""
    return isinstance(value, dict) and all(
        isinstance(each, bool) or _is_number(each) for each in value.values()
    )


def _is_bundles(value: object) -> bool:
    bounds: object = value.get("boundaries") if isinstance(value, dict) else None
    return isinstance(bounds, list) and len(bounds) > 1 and all(map(_is_bound, bounds))


def _is_bound(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return 0 <= int(text, 16) <= 0xFFFFFFFF
    except ValueError:
        return False


def _is_quota(value: object) -> bool:
    if not isinstance(value, dict) or not _is_policy(value):
        return False
    limits = (value.get(name, -1) for name in ("limit", "limitSize", "limitTime"))
    policies = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
    return all(map(_is_number, limits)) and value.get("policy", policies[0]) in policies


def _is_inactive(value: object) -> bool:
    modes = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
    return (
        isinstance(value, dict)
        and _is_policy(value)
        and value.get("inactiveTopicDeleteMode", modes[0]) in modes
        and _is_number(value.get("maxInactiveDurationSeconds", 0))
    )


def _is_creation(value: object) -> bool:
    return (
        isinstance(value, dict) and _is_policy(value) and _is_number(value.get("defaultNumPartitions") or 0)
    )


def _is_grants(value: object) -> bool:
    shapes: dict[str, Shape] = {
        "namespace_auth": _of(_is_texts),
        "destination_auth": _of(_of(_is_texts)),
        "subscription_auth_roles": _of(_is_texts),
    }
    return isinstance(value, dict) and all(
        value.get(name) is None or shape(value[name]) for name, shape in shapes.items()
    )


_SHAPES: Final[Mapping[str, Shape]] = {
    **dict.fromkeys(
        (
            *("max_producers_per_topic", "maxProducerPerTopic"),
            *("max_consumers_per_topic", "maxConsumerPerTopic"),
            *("max_consumers_per_subscription", "maxConsumersPerSubscription"),
            *("max_subscriptions_per_topic", "maxSubscriptionsPerTopic"),
            *("max_topics_per_namespace", "maxMessageSize"),
            *("max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer"),
            *("max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription"),
            *("message_ttl_in_seconds", "messageTTLInSeconds"),
            *("subscription_expiration_time_minutes", "compaction_threshold", "compactionThreshold"),
            *("deduplicationSnapshotIntervalSeconds", "offload_max_age_in_seconds"),
            *("offload_threshold", "offload_threshold_in_seconds", "offload_deletion_lag_ms"),
        ),
        _is_number,
    ),
    **dict.fromkeys(("retention_policies", "persistence", "delayed_delivery_policies"), _is_numbers),
    **dict.fromkeys(("autoSubscriptionCreationOverride",), _is_policy),
    **dict.fromkeys(("subscription_types_enabled", "subscriptionTypesEnabled"), _is_texts),
    **dict.fromkeys(("replication_clusters", "allowed_clusters"), _is_texts),
    **dict.fromkeys(("backlog_quota_map", "backLogQuotaMap"), _of(_is_quota)),
    "subscriptionPolicies": _of(_of(_is_numbers)),
    "autoTopicCreationOverride": _is_creation,
    "inactive_topic_policies": _is_inactive,
    "entryFilters": _of(_is_text),
    "offload_policies": _is_object,
    "properties": _of(_is_text),
    "resource_group_name": _is_text,
    "bundles": _is_bundles,
    "auth_policies": _is_grants,
}

_OF_NAMESPACE: Final[Mapping[str, Shape]] = {
    **_SHAPES,
    **dict.fromkeys(
        (
            *("publishMaxMessageRate", "topicDispatchRate", "subscriptionDispatchRate"),
            *("replicatorDispatchRate", "clusterSubscribeRate", "clusterDispatchRate"),
        ),
        _of(_is_numbers),
    ),
}
_OF_TOPIC: Final[Mapping[str, Shape]] = {
    **_SHAPES,
    **dict.fromkeys(
        (
            *("publishRate", "dispatchRate", "subscribeRate"),
            *("subscriptionDispatchRate", "replicatorDispatchRate"),
        ),
        _is_numbers,
    ),
}


def passed_over(document: Mapping[str, object], *, of_topic: bool) -> list[str]:
    """Names of the parts that cannot be used; null is not set."""
    shapes = _OF_TOPIC if of_topic else _OF_NAMESPACE
    return sorted(
        key
        for key, value in document.items()
        if value is not None and key in shapes and not shapes[key](value)
    )


_KEEPS: Final[Mapping[str, object]] = {
    "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
    "message_ttl_in_seconds": 0,
    "messageTTLInSeconds": 0,
    "subscription_expiration_time_minutes": 0,
}
"""In place of parts that cannot be used. The default of the broker may delete what the part protected."""


def without(document: Mapping[str, object], wrong: Collection[str]) -> dict[str, object]:
    """The document without these parts, which cannot be used."""
    rest = {key: value for key, value in document.items() if key not in wrong}
    return rest | {key: value for key, value in _KEEPS.items() if key in wrong}
