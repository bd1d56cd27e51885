"""What policies say of a topic's log and of deduplication (pure).

The broker's setting, then the namespace's policy, then the topic's own: the narrowest that says something
wins. Limits, compaction and offloading read their own policies (`limits/limits.py`, `compaction/job.py`,
`tiered/policy.py`).

Source: Pulsar's policies documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.broker.config import BrokerConfig
from magnetar.broker.dedup.dedup_state import DedupLimits
from magnetar.broker.policies.policies import Policies
from magnetar.ledger.api import Copies
from magnetar.managedlog.config import UNLIMITED, Retention

COPIES: Final = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
"""Keys of the `persistence` policy, in the order of `Copies`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """In force on one topic."""

    retention: Retention
    """For how long, and how much of, what is acknowledged stays."""
    copies: Copies | None
    """On how many bookies its new ledgers lie; None: as the broker was told."""
    deduplicates: bool
    """Whether messages that are sent again are dropped."""
    dedup_limits: DedupLimits
    """How much deduplication remembers, and how often it stores that."""

    @classmethod
    def of(cls, config: BrokerConfig, own: Policies, namespace: Policies) -> TopicSettings:
        """The settings of a topic with these policies of its own in this namespace."""
        return cls(
            retention=_retention(config, own, namespace),
            copies=None if config.copies is None else copies_in_force(config.copies, own, namespace),
            deduplicates=_deduplicates(config, own, namespace),
            dedup_limits=config.deduplication_limits.with_interval(own, namespace),
        )


def copies_in_force(told: Copies, own: Policies, namespace: Policies) -> Copies | None:
    """How many bookies hold a topic's ledgers, when its own policy or its namespace's differs from the
    configuration. A 0 means unset."""
    said = own.get("persistence", namespace.get("persistence")) or {}
    found = (said.get(name) or default for name, default in zip(COPIES, told, strict=True))
    ensemble, written, acknowledged = map(int, found)
    copies = Copies(ensemble, written, acknowledged)
    return None if copies == told else copies


def _retention(config: BrokerConfig, own: Policies, namespace: Policies) -> Retention:
    said = own.get("retention_policies", namespace.get("retention_policies")) or {}
    minutes = int(said.get("retentionTimeInMinutes", config.retention_minutes))
    mib = int(said.get("retentionSizeInMB", config.retention_mib))
    return Retention(
        ms=minutes * 60_000 if minutes >= 0 else UNLIMITED,
        size_bytes=mib << 20 if mib >= 0 else UNLIMITED,
    )


def _deduplicates(config: BrokerConfig, own: Policies, namespace: Policies) -> bool:
    for level in (own.get("deduplicationEnabled"), namespace.get("deduplicationEnabled")):
        if level is not None:
            return bool(level)
    return config.deduplication
