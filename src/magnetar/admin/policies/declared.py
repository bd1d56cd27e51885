"""What a policy is: one declaration gives its routes, its place in the stored documents, what applies where
nothing is set, and its part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.admin.calls.call import Call
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.policies import Policies

Schema = Mapping[str, Any]
"""A JSON schema, as OpenAPI has them."""


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A type of values."""

    read: Callable[[Call], Any]
    """The value of a request; None takes the policy away. Raises BadRequestError (no value of this type),
    PreconditionFailedError (one that makes no sense)."""
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy of namespaces, of topics, or of both."""

    kind: PolicyKind
    of_namespace: str | None = None
    """Last part of the namespace's path; None: only topics have it."""
    of_topic: str | None = None
    namespace_key: str = ""
    """In the namespace's document."""
    topic_key: str = ""
    """In a topic's document."""
    by_cluster: bool = False
    """Whether the namespace's document holds it by cluster."""
    put: bool = False
    """Whether a namespace's is set by PUT; all others by POST."""
    unset: Any = None
    """What GET answers when it is not set; None: 204."""
    default: Callable[[BrokerConfig], Any] | None = None
    """What applies where neither the topic nor its namespace says anything."""
    kind_of_topic: PolicyKind | None = None
    """Where a topic's is read otherwise than the namespace's: Pulsar says or takes something else there."""
    check: Callable[[Any, Policies, Policies], None] | None = None
    """Whether a value suits what is set beside it, in the topic's document and the namespace's. Raises
    PreconditionFailedError."""

    def in_namespace(self, document: Policies, cluster: str) -> Any:
        """The namespace's value; None when it is not set."""
        found = document.get(self.namespace_key) if self.namespace_key else None
        return (found or {}).get(cluster) if self.by_cluster else found

    def store_in_namespace(self, document: Policies, cluster: str, value: Any) -> None:
        """Puts a value into the namespace's document; None takes it out."""
        if not self.by_cluster:
            _store(document, self.namespace_key, value)
            return
        others = {
            name: kept for name, kept in (document.get(self.namespace_key) or {}).items() if name != cluster
        }
        if value is not None:
            others[cluster] = value
        _store(document, self.namespace_key, others or None)

    def store_in_topic(self, document: Policies, value: Any) -> None:
        """Puts a value into a topic's document; None takes it out."""
        _store(document, self.topic_key, value)

    def applied(self, own: Policies, namespace: Policies, config: BrokerConfig) -> Any:
        """What is in force on a topic: its own, its namespace's or the broker's."""
        found = own.get(self.topic_key)
        if found is None:
            found = self.in_namespace(namespace, config.cluster)
        if found is None and self.default is not None:
            return self.default(config)
        return found


def _store(document: Policies, key: str, value: Any) -> None:
    if value is None:
        document.pop(key, None)
    else:
        document[key] = value
