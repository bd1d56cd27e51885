"""The limits in force on a topic, from its policies, its namespace's and the broker's (pure).

Each limit has a name in the document of a topic, one in that of a namespace, and a default; the first that is
set wins. Names and shapes are Pulsar's. 0 means "no limit" unless a field's text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.broker.dispatch.consumer import UNACKED_MESSAGES_MAX
from magnetar.broker.dispatch.unacked import UNACKED_MESSAGES_MAX_SHARED
from magnetar.broker.filters.rules import FilterRules
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.groups import ResourceGroup
from magnetar.broker.limits.token_bucket import Rate
from magnetar.broker.policies.policy_shapes import Document

ALL_TYPES: Final = frozenset({"Exclusive", "Shared", "Failover", "Key_Shared"})
"""Types of subscription, as the admin API writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a topic. Also: the broker's defaults."""

    encryption_required: bool = False
    subscription_types: frozenset[str] = ALL_TYPES
    """Types that may subscribe."""
    producers_max: int = 0
    consumers_max: int = 0
    """Consumers of the topic."""
    consumers_max_per_subscription: int = 0
    subscriptions_max: int = 0
    topics_max: int = 0
    """Topics of the namespace; partitions count."""
    unacked_max_per_consumer: int = UNACKED_MESSAGES_MAX
    """Messages of a Shared or Key_Shared consumer."""
    unacked_max_per_subscription: int = UNACKED_MESSAGES_MAX_SHARED
    """Messages of a Shared or Key_Shared subscription."""
    message_bytes_max: int = 0
    """Largest message, beside the broker's own limit."""
    delayed_delivery: bool = True
    """Whether Shared and Key_Shared subscriptions hold messages back until their time."""
    delay_ms_max: int = 0
    """Longest time for which a message may ask to be held back."""
    ttl_s: int = 0
    """Age in seconds at which messages count as acknowledged."""
    quotas: tuple[BacklogQuota, ...] = ()
    publish_rate: Rate = field(default_factory=Rate)
    dispatch_rate: Rate = field(default_factory=Rate)
    """Rate of all subscriptions of the topic together."""
    subscription_dispatch_rate: Rate = field(default_factory=Rate)
    """Rate of each subscription."""
    subscription_rates: tuple[tuple[str, Rate], ...] = ()
    """Of single subscriptions of the topic, by name, instead of `subscription_dispatch_rate`."""
    group: ResourceGroup | None = None
    """The group whose rates the topic shares."""
    entry_filters: FilterRules = field(default_factory=FilterRules)
    """Which decide what subscriptions get."""
    subscribe_rate: Rate = field(default_factory=Rate)
    """Subscribe commands of one consumer (`messages`)."""


_NAMESPACES_KNOWN: Final = 256
"""Documents whose limits are cached, including replaced ones."""

_NUMBERS: Final = {
    "producers_max": ("maxProducerPerTopic", "max_producers_per_topic"),
    "consumers_max": ("maxConsumerPerTopic", "max_consumers_per_topic"),
    "consumers_max_per_subscription": ("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    "subscriptions_max": ("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    "topics_max": (None, "max_topics_per_namespace"),
    "unacked_max_per_consumer": ("maxUnackedMessagesOnConsumer", "max_unacked_messages_per_consumer"),
    "unacked_max_per_subscription": (
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
    ),
    "message_bytes_max": ("maxMessageSize", None),
    "ttl_s": ("messageTTLInSeconds", "message_ttl_in_seconds"),
}
"""Field → its key in a topic's document and in a namespace's."""

DELAYED_DELIVERY_POLICY: Final = "delayed_delivery_policies"
"""Key of a topic's document and of a namespace's. `active` counts; `tickTime` is stored and returned, but
delivery is always as exact as with the smallest."""

DELAY_MAX: Final = "maxDeliveryDelayInMillis"
"""Part of that policy: 0 is without limit."""

SUBSCRIPTION_POLICIES: Final = "subscriptionPolicies"
"""Key of a topic's document: policies of single subscriptions, by name."""
SUBSCRIPTION_RATE: Final = "dispatchRate"
"""Of these policies."""

QUOTAS_OF_TOPIC: Final = "backLogQuotaMap"
QUOTAS_OF_NAMESPACE: Final = "backlog_quota_map"

_DISPATCH: Final = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
_PUBLISH: Final = ("publishThrottlingRateInMsg", "publishThrottlingRateInByte")
_SUBSCRIBE: Final = ("subscribeThrottlingRatePerConsumer", None)

_RATES: Final = {
    "publish_rate": ("publishRate", "publishMaxMessageRate", _PUBLISH),
    "dispatch_rate": ("dispatchRate", "topicDispatchRate", _DISPATCH),
    "subscription_dispatch_rate": ("subscriptionDispatchRate", "subscriptionDispatchRate", _DISPATCH),
    "subscribe_rate": ("subscribeRate", "clusterSubscribeRate", _SUBSCRIBE),
}
"""Field → its keys, and the names of its two numbers; a namespace stores its rates by cluster."""


def effective(own: Document, namespace: Document, defaults: Limits, cluster: str) -> Limits:
    """The limits in force. `own` and `namespace` are documents as Pulsar stores them."""
    found: dict[str, Any] = {}
    for name, (own_key, namespace_key) in _NUMBERS.items():
        value = _first(own, own_key, namespace, namespace_key)
        found[name] = getattr(defaults, name) if value is None else max(0, int(value))
    for name, (own_key, namespace_key, parts) in _RATES.items():
        document = own.get(own_key) or (namespace.get(namespace_key) or {}).get(cluster)
        found[name] = _rate(document, *parts) if document else getattr(defaults, name)
    delayed = _first(own, DELAYED_DELIVERY_POLICY, namespace, DELAYED_DELIVERY_POLICY) or {}
    types = own.get("subscriptionTypesEnabled") or namespace.get("subscription_types_enabled")
    return Limits(
        encryption_required=bool(namespace.get("encryption_required")) or defaults.encryption_required,
        subscription_types=frozenset(map(_type_name, types)) if types else defaults.subscription_types,
        delayed_delivery=bool(delayed.get("active", defaults.delayed_delivery)),
        delay_ms_max=max(0, int(delayed.get(DELAY_MAX) or 0)),
        subscription_rates=_subscription_rates(own.get(SUBSCRIPTION_POLICIES) or {}),
        quotas=_quotas(own, namespace, defaults),
        entry_filters=defaults.entry_filters.under(own, namespace),
        **found,
    )


class LimitsInForce:
    """`effective` for the topics of one broker.

    Nearly every topic has no policies of its own: the limits for those are cached by the namespace's
    document, which is never edited but replaced.
    """

    def __init__(self, defaults: Limits, cluster: str) -> None:
        self._defaults = defaults
        self._cluster = cluster
        self._known: dict[int, tuple[Document, Limits]] = {}

    def of(self, own: Document, namespace: Document) -> Limits:
        """See `effective`."""
        if own:
            return effective(own, namespace, self._defaults, self._cluster)
        # The document is kept beside its id, so that no other document can get the id.
        known = self._known.get(id(namespace))
        if known is None:
            if len(self._known) >= _NAMESPACES_KNOWN:
                self._known.clear()
            limits = effective(own, namespace, self._defaults, self._cluster)
            known = self._known[id(namespace)] = (namespace, limits)
        return known[1]


def _first(own: Document, own_key: str | None, namespace: Document, namespace_key: str | None) -> Any:
    value = None if own_key is None else own.get(own_key)
    if value is None and namespace_key is not None:
        value = namespace.get(namespace_key)
    return value


def _rate(document: Document, messages: str, size: str | None) -> Rate:
    period_s = int(document.get("ratePeriodInSecond") or 1)
    return Rate(
        max(0, int(document.get(messages, -1))),
        0 if size is None else max(0, int(document.get(size, -1))),
        max(1, period_s) * 1000,
        document.get("relativeToPublishRate") is True,
    )


def _subscription_rates(policies: Document) -> tuple[tuple[str, Rate], ...]:
    rates = ((name, found.get(SUBSCRIPTION_RATE)) for name, found in sorted(policies.items()))
    return tuple((name, _rate(document, *_DISPATCH)) for name, document in rates if document)


def _type_name(name: str) -> str:
    """The type under either of its two spellings, "KeyShared" and "Key_Shared"."""
    return "Key_Shared" if name == "KeyShared" else name


def _quotas(own: Document, namespace: Document, defaults: Limits) -> tuple[BacklogQuota, ...]:
    fallback = {quota.kind: quota for quota in defaults.quotas}
    found = []
    for kind in QuotaKind:
        for document in (own.get(QUOTAS_OF_TOPIC), namespace.get(QUOTAS_OF_NAMESPACE)):
            if document and kind in document:
                found.append(_quota(kind, document[kind]))
                break
        else:
            if kind in fallback:
                found.append(fallback[kind])
    return tuple(quota for quota in found if quota.limits)


def _quota(kind: QuotaKind, document: Document) -> BacklogQuota:
    if kind is QuotaKind.AGE:
        limit = document.get("limitTime", -1)
    else:
        # `limit` is the older name of `limitSize`; writers give either or both.
        limit = document.get("limitSize", document.get("limit", -1))
    return BacklogQuota(kind, int(limit), QuotaPolicy(document.get("policy", QuotaPolicy.HOLD)))
