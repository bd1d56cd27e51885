"""Policies of topics as Pulsar's `__change_events` topics hold them, and as documents (pure).

Source: Pulsar's TopicPolicies and PulsarEvent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.base.names import InvalidNameError, TopicName

_SAME: Final = (
    "autoSubscriptionCreationOverride",
    "backLogQuotaMap",
    "deduplicationEnabled",
    "deduplicationSnapshotIntervalSeconds",
    "dispatchRate",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "entryFilters",
    "maxConsumerPerTopic",
    "maxConsumersPerSubscription",
    "maxMessageSize",
    "maxProducerPerTopic",
    "maxSubscriptionsPerTopic",
    "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesOnSubscription",
    "messageTTLInSeconds",
    "persistence",
    "publishRate",
    "replicatorDispatchRate",
    "subscribeRate",
    "subscriptionDispatchRate",
    "subscriptionTypesEnabled",
)
_RENAMED: Final = {
    "compactionThreshold": "compaction_threshold",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "retentionPolicies": "retention_policies",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
}
_DELAYED: Final = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}
_NOT_POLICIES: Final = frozenset({"isGlobal"})
_EMPTY: Final[tuple[object, ...]] = (None, [], {})


class TopicEvent(NamedTuple):
    """What one event says."""

    topic: TopicName
    everywhere: bool
    """Whether it is about the policies for all clusters."""
    policies: Mapping[str, object] | None
    """Pulsar's TopicPolicies; None: there are none any more."""


def event_of(document: object) -> TopicEvent | None:
    """What a decoded PulsarEvent says; None when it is about something else. Raises ValueError."""
    if not isinstance(document, dict) or document.get("eventType") != "TOPIC_POLICY":
        return None
    about = document.get("topicPoliciesEvent")
    if not isinstance(about, dict):
        raise ValueError("the event names no topic")
    names = [about.get(part) for part in ("domain", "tenant", "namespace", "topic")]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("the event names no topic")
    domain, tenant, namespace, local = map(str, names)
    try:
        # Some versions name the topic as a whole.
        topic = TopicName.parse(local) if "://" in local else TopicName.of(domain, tenant, namespace, local)
    except InvalidNameError as error:
        raise ValueError(f"the event names no topic: {error}") from error
    policies = about.get("policies")
    everywhere = isinstance(policies, dict) and policies.get("isGlobal") is True
    if document.get("actionType") == "DELETE" or not isinstance(policies, dict):
        return TopicEvent(topic.base, everywhere, None)
    return TopicEvent(topic.base, everywhere, policies)


def document_of(policies: Mapping[str, object]) -> dict[str, object]:
    """The document of a topic with these policies of Pulsar's, without those that are not set."""
    found: dict[str, object] = {name: policies[name] for name in _SAME if policies.get(name) not in _EMPTY}
    for name, ours in _RENAMED.items():
        if policies.get(name) not in _EMPTY:
            found[ours] = policies[name]
    delayed = {ours: policies[name] for name, ours in _DELAYED.items() if policies.get(name) is not None}
    if delayed:
        found["delayed_delivery_policies"] = {"active": False, "tickTime": 1000, **delayed}
    of_subscriptions = policies.get("subscriptionPolicies")
    if isinstance(of_subscriptions, dict) and of_subscriptions:
        found["subscriptionPolicies"] = {
            name: {key: rate for key, rate in each.items() if rate is not None}
            for name, each in of_subscriptions.items()
            if isinstance(each, dict)
        }
    return found


def without_place(policies: Mapping[str, object]) -> list[str]:
    """Names of policies that are set and have no place in a document."""
    known = {*_SAME, *_RENAMED, *_DELAYED, *_NOT_POLICIES, "subscriptionPolicies"}
    return sorted(name for name, value in policies.items() if name not in known and value not in _EMPTY)
