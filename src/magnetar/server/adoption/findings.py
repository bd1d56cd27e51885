"""What an adoption finds in the metadata of a Pulsar cluster, and what of it is not understood (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

POLICIES_UNUSED: Final = frozenset(
    {
        "latency_stats_sample_rate",
        "offload_threshold",
        "offload_deletion_lag_ms",
        "offload_threshold_in_seconds",
        "schema_auto_update_compatibility_strategy",
    }
)
"""Policies of a namespace that Pulsar always writes, and that mean nothing without another one."""
POLICIES_WITHOUT_EFFECT: Final = frozenset(
    {
        "replicatorDispatchRate",
        "shadowTopics",
        "latency_stats_sample_rate",
        "antiAffinityGroup",
        "dispatcherPauseOnAckStatePersistentEnabled",
        "allowed_topic_property_keys_for_metrics",
    }
)
"""Policies that are kept and have no effect here."""


@dataclass(frozen=True, slots=True)
class AdoptionFinding:
    """Something that an operator should know before the adoption."""

    path: str
    """Where it is."""
    what: str
    """What it is, and what it means here."""
    prevents: bool
    """Whether the cluster cannot be adopted while it is there."""

    def row(self) -> dict[str, object]:
        """As shown."""
        return {
            "weight": "prevents adoption" if self.prevents else "to know",
            "path": self.path,
            "what": self.what,
        }


@dataclass(slots=True)
class AdoptionFindings:
    """All that was found."""

    counts: Counter[str] = field(default_factory=Counter)
    """What there is, by kind."""
    findings: list[AdoptionFinding] = field(default_factory=list)

    def note(self, path: str, what: str) -> None:
        """Something that is kept and has no effect, or works otherwise."""
        self.findings.append(AdoptionFinding(path, what, prevents=False))

    def prevent(self, path: str, what: str) -> None:
        """Something that is not understood, or not safe."""
        self.findings.append(AdoptionFinding(path, what, prevents=True))

    @property
    def obstacles(self) -> list[AdoptionFinding]:
        """What prevents the adoption."""
        return [each for each in self.findings if each.prevents]


def policies_without_effect(document: Mapping[str, object], cluster: str) -> list[str]:
    """What a namespace's policies ask for and do not get, in words."""
    said = [
        f"the policy {name} has no effect"
        for name in sorted(POLICIES_WITHOUT_EFFECT - POLICIES_UNUSED)
        if document.get(name)
    ]
    for name in ("replication_clusters", "allowed_clusters"):
        clusters = document.get(name)
        others = [each for each in clusters if each != cluster] if isinstance(clusters, list) else []
        if others and name == "replication_clusters":
            said.append(f"nothing is replicated to {', '.join(map(str, others))}")
    if document.get("migrated"):
        said.append("it was migrated to another cluster, whose address clients are not told")
    return said
