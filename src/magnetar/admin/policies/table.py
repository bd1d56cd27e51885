"""The table of all policies with a single value. Backlog quotas, which have one per kind, are in `quotas.py`.

Policies take effect when the call returns, also on connected clients.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.admin.policies import kinds, policy_documents
from magnetar.admin.policies.declared import Policy
from magnetar.broker.compaction.job import THRESHOLD_POLICY
from magnetar.broker.config import BrokerConfig
from magnetar.broker.dedup.dedup_state import SNAPSHOT_INTERVAL_POLICY
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters.rules import FILTER_NAMES, FILTERS_POLICY
from magnetar.broker.inactive.expiry import EXPIRATION_POLICY
from magnetar.broker.inactive.policy import INACTIVE_POLICY
from magnetar.broker.limits.backlog import fits_retention
from magnetar.broker.limits.limits import DELAYED_DELIVERY_POLICY, QUOTAS_OF_NAMESPACE, QUOTAS_OF_TOPIC
from magnetar.broker.policies.creation import SUBSCRIPTIONS_POLICY, TOPICS_POLICY
from magnetar.broker.policies.policies import Policies
from magnetar.broker.policies.schema_rules import AUTO_UPDATE_POLICY
from magnetar.tiered.policy import MAX_AGE


def _retention_above_quotas(value: Policies | None, own: Policies, namespace: Policies) -> None:
    quotas = {**(namespace.get(QUOTAS_OF_NAMESPACE) or {}), **(own.get(QUOTAS_OF_TOPIC) or {})}
    if not all(fits_retention(quota, value) for quota in quotas.values()):
        raise PreconditionFailedError(
            f"Retention Quota must exceed configured backlog quota for {'topic' if own else 'namespace'}.",
            remedy="raise the retention, or lower the quota first",
        )


def _retention(config: BrokerConfig) -> dict[str, int]:
    return {
        "retentionTimeInMinutes": config.retention_minutes,
        "retentionSizeInMB": config.retention_mib,
    }


def _inactive(config: BrokerConfig) -> dict[str, object]:
    return {
        "inactiveTopicDeleteMode": config.inactive.mode.value,
        "maxInactiveDurationSeconds": config.inactive.idle_s,
        "deleteWhileInactive": config.inactive.delete,
    }


def _filters(config: BrokerConfig) -> dict[str, str] | None:
    names = config.limits.entry_filters.names
    return {FILTER_NAMES: ",".join(names)} if names else None


def _same(key: str, path: str | None = None, **options: Any) -> Policy:
    """A policy of namespaces and topics with the same key at both levels."""
    return Policy(namespace_key=key, topic_key=key, of_namespace=path or key, of_topic=path or key, **options)


DEDUPLICATION: Final = Policy(
    kind=kinds.BOOLEAN,
    kind_of_topic=kinds.OPTIONAL_BOOLEAN,
    of_namespace="deduplication",
    of_topic="deduplicationEnabled",
    namespace_key="deduplicationEnabled",
    topic_key="deduplicationEnabled",
    default=lambda config: config.deduplication,
)

POLICIES: Final = (
    # -- connections: permissions and numbers --
    Policy(
        kind=kinds.BOOLEAN,
        of_namespace="encryptionRequired",
        namespace_key="encryption_required",
    ),
    Policy(
        kind=kinds.TYPES,
        of_namespace="subscriptionTypesEnabled",
        of_topic="subscriptionTypesEnabled",
        namespace_key="subscription_types_enabled",
        topic_key="subscriptionTypesEnabled",
        default=lambda config: sorted(config.limits.subscription_types),
    ),
    Policy(
        kind=kinds.NUMBER,
        of_namespace="maxProducersPerTopic",
        of_topic="maxProducers",
        namespace_key="max_producers_per_topic",
        topic_key="maxProducerPerTopic",
        default=lambda config: config.limits.producers_max,
    ),
    Policy(
        kind=kinds.NUMBER,
        of_namespace="maxConsumersPerTopic",
        of_topic="maxConsumers",
        namespace_key="max_consumers_per_topic",
        topic_key="maxConsumerPerTopic",
        default=lambda config: config.limits.consumers_max,
    ),
    Policy(
        kind=kinds.NUMBER,
        kind_of_topic=kinds.CONSUMERS_OF_TOPIC,
        of_namespace="maxConsumersPerSubscription",
        of_topic="maxConsumersPerSubscription",
        namespace_key="max_consumers_per_subscription",
        topic_key="maxConsumersPerSubscription",
        default=lambda config: config.limits.consumers_max_per_subscription,
    ),
    Policy(
        kind=kinds.NUMBER,
        of_namespace="maxSubscriptionsPerTopic",
        of_topic="maxSubscriptionsPerTopic",
        namespace_key="max_subscriptions_per_topic",
        topic_key="maxSubscriptionsPerTopic",
        default=lambda config: config.limits.subscriptions_max,
    ),
    Policy(
        kind=kinds.NUMBER,
        of_namespace="maxTopicsPerNamespace",
        namespace_key="max_topics_per_namespace",
    ),
    Policy(
        kind=kinds.NUMBER,
        kind_of_topic=kinds.OPTIONAL_UNACKED,
        of_namespace="maxUnackedMessagesPerConsumer",
        of_topic="maxUnackedMessagesOnConsumer",
        namespace_key="max_unacked_messages_per_consumer",
        topic_key="maxUnackedMessagesOnConsumer",
        default=lambda config: config.limits.unacked_max_per_consumer,
    ),
    Policy(
        kind=kinds.NUMBER,
        kind_of_topic=kinds.OPTIONAL_UNACKED,
        of_namespace="maxUnackedMessagesPerSubscription",
        of_topic="maxUnackedMessagesOnSubscription",
        namespace_key="max_unacked_messages_per_subscription",
        topic_key="maxUnackedMessagesOnSubscription",
        default=lambda config: config.limits.unacked_max_per_subscription,
    ),
    Policy(
        kind=kinds.MESSAGE_SIZE,
        of_topic="maxMessageSize",
        topic_key="maxMessageSize",
        default=lambda config: config.message_bytes_max,
    ),
    # -- how fast --
    Policy(
        kind=policy_documents.PUBLISH,
        of_namespace="publishRate",
        of_topic="publishRate",
        namespace_key="publishMaxMessageRate",
        topic_key="publishRate",
        by_cluster=True,
    ),
    Policy(
        kind=policy_documents.DISPATCH,
        of_namespace="dispatchRate",
        of_topic="dispatchRate",
        namespace_key="topicDispatchRate",
        topic_key="dispatchRate",
        by_cluster=True,
    ),
    _same("subscriptionDispatchRate", kind=policy_documents.DISPATCH, by_cluster=True),
    _same("replicatorDispatchRate", kind=policy_documents.DISPATCH, by_cluster=True),
    Policy(
        kind=policy_documents.SUBSCRIBE,
        of_namespace="subscribeRate",
        of_topic="subscribeRate",
        namespace_key="clusterSubscribeRate",
        topic_key="subscribeRate",
        by_cluster=True,
    ),
    # -- what stays --
    Policy(
        kind=kinds.TTL,
        kind_of_topic=kinds.TTL_OF_TOPIC,
        of_namespace="messageTTL",
        of_topic="messageTTL",
        namespace_key="message_ttl_in_seconds",
        topic_key="messageTTLInSeconds",
        default=lambda config: config.limits.ttl_s,
    ),
    Policy(
        kind=kinds.EXPIRATION,
        of_namespace="subscriptionExpirationTime",
        namespace_key=EXPIRATION_POLICY,
    ),
    _same(
        "retention_policies",
        "retention",
        kind=policy_documents.RETENTION,
        check=_retention_above_quotas,
        default=_retention,
    ),
    _same("persistence", kind=policy_documents.PERSISTENCE),
    Policy(
        kind=kinds.BYTES,
        kind_of_topic=kinds.BYTES_OF_TOPIC,
        of_namespace="compactionThreshold",
        of_topic="compactionThreshold",
        namespace_key=THRESHOLD_POLICY,
        topic_key=THRESHOLD_POLICY,
        put=True,
        default=lambda config: config.compaction_threshold_bytes,
    ),
    _same(
        MAX_AGE,
        "offloadMaxAgeInSeconds",
        kind=kinds.MAX_AGE,
        default=lambda config: config.offload_max_age_s,
    ),
    _same(
        INACTIVE_POLICY,
        "inactiveTopicPolicies",
        kind=policy_documents.INACTIVE_TOPICS,
        default=_inactive,
    ),
    # -- what comes into being --
    Policy(
        kind=policy_documents.TOPIC_CREATION, of_namespace="autoTopicCreation", namespace_key=TOPICS_POLICY
    ),
    _same(
        SUBSCRIPTIONS_POLICY,
        "autoSubscriptionCreation",
        kind=policy_documents.SUBSCRIPTION_CREATION,
        default=lambda config: {"allowAutoSubscriptionCreation": config.creation.subscriptions},
    ),
    # -- how messages are taken and given --
    DEDUPLICATION,
    _same(
        SNAPSHOT_INTERVAL_POLICY,
        "deduplicationSnapshotInterval",
        kind=kinds.INTERVAL,
        kind_of_topic=kinds.INTERVAL_OF_TOPIC,
    ),
    _same(DELAYED_DELIVERY_POLICY, "delayedDelivery", kind=policy_documents.DELAYED_DELIVERY),
    _same(FILTERS_POLICY, kind=policy_documents.ENTRY_FILTERS, default=_filters),
    _same(
        "dispatcherPauseOnAckStatePersistentEnabled",
        "dispatcherPauseOnAckStatePersistent",
        kind=kinds.SWITCH,
        unset=False,
    ),
    # -- schemas --
    Policy(
        kind=kinds.STRATEGY,
        of_namespace="schemaCompatibilityStrategy",
        namespace_key="schema_compatibility_strategy",
        put=True,
        unset="UNDEFINED",
    ),
    Policy(
        kind=kinds.AUTO_UPDATE_STRATEGY,
        of_namespace="schemaAutoUpdateCompatibilityStrategy",
        namespace_key=AUTO_UPDATE_POLICY,
        put=True,
        unset="Full",
    ),
    Policy(
        kind=kinds.BOOLEAN,
        of_namespace="isAllowAutoUpdateSchema",
        namespace_key="is_allow_auto_update_schema",
        unset=True,
    ),
    _same("schema_validation_enforced", "schemaValidationEnforced", kind=kinds.BOOLEAN, unset=False),
)

# A topic's strategy is set by PUT, as in Pulsar, and is the namespace's where it is asked what applies.
TOPIC_STRATEGY: Final = Policy(
    kind=kinds.STRATEGY,
    of_topic="schemaCompatibilityStrategy",
    namespace_key="schema_compatibility_strategy",
    topic_key="schema_compatibility_strategy",
    put=True,
    unset="UNDEFINED",
)

# The older name of `deduplicationEnabled`.
TOPIC_DEDUPLICATION: Final = Policy(
    kind=kinds.OPTIONAL_BOOLEAN,
    kind_of_topic=kinds.OPTIONAL_BOOLEAN,
    of_topic="deduplication",
    namespace_key="deduplicationEnabled",
    topic_key="deduplicationEnabled",
    default=lambda config: config.deduplication,
)

ALL: Final = (*POLICIES, TOPIC_STRATEGY, TOPIC_DEDUPLICATION)
