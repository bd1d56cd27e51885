"""Which topics a changed document concerns, by its key (pure).

| Key below `/admin` | Concerns |
|---|---|
| `policies/{tenant}/{namespace}`, `local-policies/{tenant}/{namespace}` | the topics of the namespace |
| `topic-policies/{...}/{topic}`, `local-policies/topic-policies/{...}/{topic}` | the topic, its partitions |
| `policies/{tenant}`, `clusters/...`, `partitioned-topics/...` | no loaded topic |
| everything else: settings of brokers, resource groups, `/admin` itself (some document) | all topics |

A namespace that makes topics in a loop must not have every other topic looked at for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar.base.names import TopicName
from magnetar.metadata import keys

_LOCAL: Final = "/admin/local-policies"
_TOPICS: Final = ("/admin/topic-policies/", f"{_LOCAL}/topic-policies/")
_NAMESPACES: Final = (f"{keys.POLICIES}/", f"{_LOCAL}/")
_NOBODY: Final = (f"{keys.CLUSTERS}/", "/admin/partitioned-topics/")


@dataclass(frozen=True, slots=True)
class Scope:
    """What some changes concern together."""

    everything: bool = False
    namespaces: frozenset[tuple[str, str]] = frozenset()
    """Tenant and name."""
    topics: frozenset[tuple[str, str, str, str]] = frozenset()
    """Domain, tenant, namespace, local name without a partition."""

    @property
    def nothing(self) -> bool:
        """Whether no topic is concerned."""
        return not (self.everything or self.namespaces or self.topics)

    def covers(self, name: TopicName) -> bool:
        """Whether the topic or partition is concerned."""
        if self.everything or (name.tenant, name.namespace) in self.namespaces:
            return True
        if not self.topics:
            return False
        return (name.domain, name.tenant, name.namespace, name.base.local) in self.topics


def scope_of(paths: Iterable[str]) -> Scope:
    """What changes of these documents concern."""
    namespaces: set[tuple[str, str]] = set()
    topics: set[tuple[str, str, str, str]] = set()
    for path in paths:
        if path.startswith(_NOBODY):
            continue
        if (parts := _below(path, _TOPICS)) is not None:
            if len(parts) != 4:
                return Scope(everything=True)
            tenant, namespace, domain, local = parts
            topics.add((domain, tenant, namespace, keys.decode_child(local)))
        elif (parts := _below(path, _NAMESPACES)) is not None:
            if len(parts) == 2:
                namespaces.add((parts[0], parts[1]))
        else:
            return Scope(everything=True)
    return Scope(namespaces=frozenset(namespaces), topics=frozenset(topics))


def _below(path: str, roots: tuple[str, ...]) -> list[str] | None:
    for root in roots:
        if path.startswith(root):
            return path[len(root) :].split("/")
    return None
