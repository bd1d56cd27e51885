"""Which namespaces have a canary (pure).

The property `canary` of a namespace says `true` or `false`; without it the setting `canary_namespaces`
decides: names, or patterns like `orders/*`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from magnetar.base.names import PERSISTENT, NamespaceName, TopicName
from magnetar.broker.policies.policy_shapes import Document

PROPERTY: Final = "canary"
"""Property of a namespace: whether it has a canary."""
LOCAL_NAME: Final = "__canary"
"""Local name of a canary's topic."""


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """The canary settings of the process."""

    namespaces: tuple[str, ...] = ()
    interval_s: float = 5.0
    """Between two messages of a canary."""
    timeout_s: float = 10.0
    """After which a message counts as lost."""


def wanted(namespace: NamespaceName, policies: Document, patterns: tuple[str, ...]) -> bool:
    """Whether the namespace of these policies has a canary."""
    said = (policies.get("properties") or {}).get(PROPERTY)
    if said is not None:
        return str(said).lower() == "true"
    return any(fnmatchcase(str(namespace), pattern) for pattern in patterns)


def topic_of(namespace: NamespaceName) -> TopicName:
    """The canary's topic."""
    return TopicName.of(PERSISTENT, namespace.tenant, namespace.namespace, LOCAL_NAME)
