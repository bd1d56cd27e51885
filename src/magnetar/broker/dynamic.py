"""Settings that can change while the broker runs, by Pulsar's names (pure).

They are stored beside the policies as one JSON object of texts, and override the configuration at start until
they are removed. Source: Pulsar's ServiceConfiguration; its path is `/admin/configuration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from magnetar.broker.balance.settings import SheddingStrategy, SplitAlgorithm
from magnetar.broker.config import BrokerConfig
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.policies.creation import NON_PARTITIONED, PARTITIONED
from magnetar.schemas.compatibility import Strategy

_NUMBER_DIGITS_MAX: Final = 18


def _flag(text: str) -> bool:
    flags = {"true": True, "false": False}
    if text.lower() not in flags:
        raise ValueError(text)
    return flags[text.lower()]


def _number(text: str) -> int:
    """A number that means "without limit" below 0, as 0 does."""
    if len(text) > _NUMBER_DIGITS_MAX:
        raise ValueError(text)
    return max(0, int(text))


def _signed(text: str) -> int:
    if len(text) > _NUMBER_DIGITS_MAX or int(text) < -1:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    if _number(text) < 1:
        raise ValueError(text)
    return _number(text)


def _creation_kind(text: str) -> str:
    if text not in (PARTITIONED, NON_PARTITIONED):
        raise ValueError(text)
    return text


_KIND: Final = "allowAutoTopicCreationType"
_PARTITIONS: Final = "defaultNumPartitions"
_QUOTA_BYTES: Final = "backlogQuotaDefaultLimitBytes"
_QUOTA_SECONDS: Final = "backlogQuotaDefaultLimitSecond"
_QUOTA_POLICY: Final = "backlogQuotaDefaultRetentionPolicy"

_FIELDS: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "allowAutoSubscriptionCreation": (_flag, "creation.subscriptions"),
    "allowAutoTopicCreation": (_flag, "creation.topics"),
    "autoSkipNonRecoverableData": (_flag, "skip_lost"),
    "brokerDeduplicationEnabled": (_flag, "deduplication"),
    "brokerDeleteInactiveTopicsEnabled": (_flag, "inactive.delete"),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": (_positive, "inactive.idle_s"),
    "brokerDeleteInactiveTopicsMode": (DeleteMode, "inactive.mode"),
    "brokerServiceCompactionThresholdInBytes": (_number, "compaction_threshold_bytes"),
    "defaultNamespaceBundleSplitAlgorithm": (SplitAlgorithm, "balance.algorithm"),
    "defaultRetentionSizeInMB": (_signed, "retention_mib"),
    "defaultRetentionTimeInMinutes": (_signed, "retention_minutes"),
    "dispatchThrottlingRatePerSubscriptionInByte": (_number, "limits.subscription_dispatch_rate.size_bytes"),
    "dispatchThrottlingRatePerSubscriptionInMsg": (_number, "limits.subscription_dispatch_rate.messages"),
    "dispatchThrottlingRatePerTopicInByte": (_number, "limits.dispatch_rate.size_bytes"),
    "dispatchThrottlingRatePerTopicInMsg": (_number, "limits.dispatch_rate.messages"),
    "encryptionRequireOnProducer": (_flag, "limits.encryption_required"),
    "isAllowAutoUpdateSchemaEnabled": (_flag, "schemas.auto_update_allowed"),
    "isSchemaValidationEnforced": (_flag, "schemas.validation_enforced"),
    "loadBalancerAutoBundleSplitEnabled": (_flag, "balance.split"),
    "loadBalancerBrokerThresholdShedderPercentage": (_number, "balance.threshold_points"),
    "loadBalancerLoadSheddingStrategy": (SheddingStrategy, "balance.strategy"),
    "loadBalancerMaxNumberOfBundlesToSplitPerCycle": (_positive, "balance.split_at_once"),
    "loadBalancerMsgRateDifferenceShedderThreshold": (_number, "balance.rate_difference_percent"),
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": (_positive, "balance.size_factor"),
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": (_positive, "balance.bandwidth_mib_max"),
    "loadBalancerNamespaceBundleMaxMsgRate": (_positive, "balance.rate_max"),
    "loadBalancerNamespaceBundleMaxSessions": (_positive, "balance.sessions_max"),
    "loadBalancerNamespaceBundleMaxTopics": (_positive, "balance.topics_max"),
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": (_positive, "balance.split_hits"),
    "loadBalancerNamespaceMaximumBundles": (_positive, "balance.bundles_max"),
    "loadBalancerSheddingConditionHitCountThreshold": (_positive, "balance.hits"),
    "loadBalancerSheddingEnabled": (_flag, "balance.shedding"),
    "loadBalancerSheddingGracePeriodMinutes": (_number, "balance.grace_minutes"),
    "loadBalancerSheddingIntervalMinutes": (_number, "balance.interval_minutes"),
    "maxConsumersPerSubscription": (_number, "limits.consumers_max_per_subscription"),
    "maxConsumersPerTopic": (_number, "limits.consumers_max"),
    "maxProducersPerTopic": (_number, "limits.producers_max"),
    "maxPublishRatePerTopicInBytes": (_number, "limits.publish_rate.size_bytes"),
    "maxPublishRatePerTopicInMessages": (_number, "limits.publish_rate.messages"),
    "maxSubscriptionsPerTopic": (_number, "limits.subscriptions_max"),
    "maxTopicsPerNamespace": (_number, "limits.topics_max"),
    "maxUnackedMessagesPerConsumer": (_number, "limits.unacked_max_per_consumer"),
    "maxUnackedMessagesPerSubscription": (_number, "limits.unacked_max_per_subscription"),
    "schemaCompatibilityStrategy": (Strategy, "schemas.strategy"),
    "subscribeThrottlingRatePerConsumer": (_number, "limits.subscribe_rate.messages"),
    "ttlDurationDefaultInSeconds": (_number, "limits.ttl_s"),
}
"""A field of the configuration: the reader of its text, and its place."""

_TOGETHER: Final[dict[str, Callable[[str], object]]] = {
    _KIND: _creation_kind,
    _PARTITIONS: _positive,
    _QUOTA_BYTES: _signed,
    _QUOTA_SECONDS: _signed,
    _QUOTA_POLICY: QuotaPolicy,
}
"""What makes up a field with others."""

_READERS: Final = {name: reader for name, (reader, _) in _FIELDS.items()} | _TOGETHER

NAMES: Final = tuple(sorted(_READERS))
"""The names of all such settings."""


def is_valid(name: str, text: str) -> bool:
    """Whether `text` is a value of the setting, one of NAMES."""
    try:
        _READERS[name](text)
    except ValueError:
        return False
    return True


def overridden(told: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """The configuration in force; unknown names and invalid values, as a later version may store them, are
    ignored."""
    read = {name: _READERS[name](text) for name, text in values.items() if _counts(name, text)}
    config: object = told
    for name, value in read.items():
        if name in _FIELDS:
            config = _with(config, _FIELDS[name][1].split("."), value)
    config = _with(config, ["creation", "partitions"], _partitions(told.creation.partitions, read))
    if not read.keys().isdisjoint((_QUOTA_BYTES, _QUOTA_SECONDS, _QUOTA_POLICY)):
        config = _with(config, ["limits", "quotas"], _quotas(told.limits.quotas, read))
    assert isinstance(config, BrokerConfig)
    return config


def _counts(name: str, text: object) -> bool:
    return name in _READERS and isinstance(text, str) and is_valid(name, text)


def _with(config: Any, path: list[str], value: object) -> object:
    """The (nested) dataclass with one field changed."""
    first, *rest = path
    return replace(config, **{first: _with(getattr(config, first), rest, value) if rest else value})


def _partitions(told: int, read: Mapping[str, Any]) -> int:
    kind = read.get(_KIND, PARTITIONED if told else NON_PARTITIONED)
    return int(read.get(_PARTITIONS, told or 1)) if kind == PARTITIONED else 0


def _quotas(told: tuple[BacklogQuota, ...], read: Mapping[str, Any]) -> tuple[BacklogQuota, ...]:
    limits = {quota.kind: quota.limit for quota in told}
    policy = read.get(_QUOTA_POLICY, told[0].policy if told else QuotaPolicy.HOLD)
    for name, kind in ((_QUOTA_BYTES, QuotaKind.SIZE), (_QUOTA_SECONDS, QuotaKind.AGE)):
        limits[kind] = read.get(name, limits.get(kind, 0))
    # 0 is without limit, as in the settings at start.
    return tuple(BacklogQuota(kind, limits[kind], policy) for kind in QuotaKind if limits[kind] > 0)


def _shown(config: BrokerConfig, path: str) -> str:
    value: object = config
    for part in path.split("."):
        value = getattr(value, part)
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "value", value))


def shown(config: BrokerConfig) -> dict[str, str]:
    """The values in force, as texts."""
    values = {name: _shown(config, path) for name, (_, path) in _FIELDS.items()}
    partitions = config.creation.partitions
    values[_KIND] = PARTITIONED if partitions else NON_PARTITIONED
    values[_PARTITIONS] = str(partitions or 1)
    limits = {quota.kind: quota for quota in config.limits.quotas}
    for name, kind in ((_QUOTA_BYTES, QuotaKind.SIZE), (_QUOTA_SECONDS, QuotaKind.AGE)):
        values[name] = str(limits[kind].limit if kind in limits else -1)
    first = next(iter(config.limits.quotas), None)
    values[_QUOTA_POLICY] = (first.policy if first else QuotaPolicy.HOLD).value
    return values
