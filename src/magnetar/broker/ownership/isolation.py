"""Which brokers may serve a namespace, by the isolation policies of the cluster (pure).

A namespace that a policy names is served by the policy's primary brokers, and also by its secondary ones when
fewer primary brokers than `min_limit` are there. A namespace without a policy is served by brokers that are
primary in no policy. Source: Pulsar's SimpleResourceAllocationPolicies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from magnetar.base.names import NamespaceName


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """One policy; regular expressions as Java's `matches` takes them: they match the whole name."""

    namespaces: tuple[re.Pattern[str], ...]
    primary: tuple[re.Pattern[str], ...]
    secondary: tuple[re.Pattern[str], ...]
    primaries_min: int
    """Primary brokers below which secondary ones take part."""
    unloads: bool
    """Whether bundles leave brokers that may not serve them any more."""

    def names(self, namespace: NamespaceName) -> bool:
        """Whether it is about the namespace."""
        return _match(self.namespaces, str(namespace))


def policies_of(document: Mapping[str, object] | None) -> list[IsolationPolicy]:
    """The policies of a cluster's document; one that is not understood is passed over."""
    return [found for each in (document or {}).values() if (found := _policy(each)) is not None]


def brokers_for(
    namespace: NamespaceName, brokers: Iterable[str], policies: Iterable[IsolationPolicy]
) -> frozenset[str]:
    """The ids of those brokers that may serve the namespace; the first policy that names it counts."""
    there, known = frozenset(brokers), list(policies)
    policy = next((each for each in known if each.names(namespace)), None)
    if policy is None:
        return frozenset(each for each in there if not any(_is_one(policy.primary, each) for policy in known))
    primary = frozenset(each for each in there if _is_one(policy.primary, each))
    if len(primary) >= policy.primaries_min:
        return primary
    return primary | {each for each in there if _is_one(policy.secondary, each)}


def stays(namespace: NamespaceName, policies: Iterable[IsolationPolicy]) -> bool:
    """Whether bundles of the namespace stay at brokers that may not serve them any more."""
    policy = next((each for each in policies if each.names(namespace)), None)
    return policy is not None and not policy.unloads


def _is_one(patterns: Iterable[re.Pattern[str]], broker_id: str) -> bool:
    """By its host, as in Pulsar, or by its id, as brokers of one machine are told apart."""
    return _match(patterns, broker_id.rpartition(":")[0]) or _match(patterns, broker_id)


def _match(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    return any(each.fullmatch(name) for each in patterns)


def _policy(told: object) -> IsolationPolicy | None:
    if not isinstance(told, dict):
        return None
    failover = told.get("auto_failover_policy")
    parameters = failover.get("parameters") if isinstance(failover, dict) else None
    limit = parameters.get("min_limit", 1) if isinstance(parameters, dict) else 1
    try:
        return IsolationPolicy(
            _patterns(told.get("namespaces")),
            _patterns(told.get("primary")),
            _patterns(told.get("secondary")),
            int(limit),
            told.get("unload_scope") != "none",
        )
    except (TypeError, ValueError, re.error):
        return None


def _patterns(told: object) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each) for each in told) if isinstance(told, list) else ()
