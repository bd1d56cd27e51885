"""Which brokers a namespace of an anti-affinity group should go to, so that the group is spread (pure).

The namespaces of a group should not fail together: a bundle goes to a failure domain that serves the fewest
other namespaces of its group, and there to a broker that serves the fewest. This is a wish: where all serve
some, the bundle goes to one of them. Source: Pulsar's LoadManagerShared.filterAntiAffinityGroupOwnedBrokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from magnetar.base.names import NamespaceName


@dataclass(frozen=True, slots=True)
class Groups:
    """What is known of a cluster's groups."""

    group_of: Mapping[NamespaceName, str] = field(default_factory=dict)
    """Groups by namespace."""
    served: Mapping[NamespaceName, frozenset[str]] = field(default_factory=dict)
    """Ids of the brokers that have bundles of these namespaces."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """Failure domains by id or host of a broker; one that is not there is in none."""

    def domain_of(self, broker_id: str) -> str:
        """Its failure domain; the brokers without one are in one together, ""."""
        return self.domains.get(broker_id) or self.domains.get(broker_id.rpartition(":")[0], "")

    def preferred(self, namespace: NamespaceName, brokers: Iterable[str]) -> frozenset[str]:
        """Those of the brokers that serve the fewest other namespaces of its group: by domain, then each.

        All of them for a namespace without a group. Bundles of the namespace itself do not count, so that one
        that is where it should be stays.
        """
        able, group = frozenset(brokers), self.group_of.get(namespace)
        if group is None or not able:
            return able
        others = [
            self.served.get(each, frozenset())
            for each, theirs in self.group_of.items()
            if theirs == group and each != namespace
        ]
        of_domain = {
            domain: sum(any(self.domain_of(server) == domain for server in served) for served in others)
            for domain in {self.domain_of(each) for each in able}
        }
        least = min(of_domain.values())
        left = [each for each in able if of_domain[self.domain_of(each)] == least]
        of_broker = {each: sum(each in served for served in others) for each in left}
        fewest = min(of_broker.values())
        return frozenset(each for each in left if of_broker[each] == fewest)
