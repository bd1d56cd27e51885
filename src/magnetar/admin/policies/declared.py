"""Declarations of policies: one declaration gives the routes, the place in stored documents, the default, and
the part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from magnetar.admin.calls.call import Call
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.policies import Policies

Schema = Mapping[str, object]
"""A JSON schema for OpenAPI."""


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A type of policy values."""

    read: Callable[[Call], object]
    """Reads the value of a request; None removes the policy. Raises BadRequestError for another type,
    PreconditionFailedError for an invalid value."""
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy of namespaces, of topics, or of both."""

    kind: PolicyKind
    of_namespace: str | None = None
    """Last part of the namespace's path; None: only topics have the policy."""
    of_topic: str | None = None
    namespace_key: str = ""
    """Key in the namespace's document."""
    topic_key: str = ""
    """Key in a topic's document."""
    by_cluster: bool = False
    """Whether the namespace's document holds it by cluster."""
    put: bool = False
    """Whether the policy of a namespace is set by PUT; else by POST."""
    unset: object = None
    """Answer of GET when the policy is not set; None: 204."""
    default: Callable[[BrokerConfig], object] | None = None
    """Returns the default when neither the topic nor its namespace sets the policy."""
    kind_of_topic: PolicyKind | None = None
    """The type for topics if Pulsar treats them differently; None: the same type."""
    check: Callable[[object, Policies, Policies], None] | None = None
    """Checks a value against other policies in the documents of topic and namespace. Raises
    PreconditionFailedError."""

    def in_namespace(self, document: Policies, cluster: str) -> object:
        """The namespace's value; None when it is not set."""
        found = document.get(self.namespace_key) if self.namespace_key else None
        return (found or {}).get(cluster) if self.by_cluster else found

    def store_in_namespace(self, document: Policies, cluster: str, value: object) -> None:
        """Puts a value into the namespace's document; None removes it."""
        if not self.by_cluster:
            _store(document, self.namespace_key, value)
            return
        others = {
            name: kept for name, kept in (document.get(self.namespace_key) or {}).items() if name != cluster
        }
        if value is not None:
            others[cluster] = value
        _store(document, self.namespace_key, others or None)

    def store_in_topic(self, document: Policies, value: object) -> None:
        """Puts a value into a topic's document; None removes it."""
        _store(document, self.topic_key, value)

    def applied(self, own: Policies, namespace: Policies, config: BrokerConfig) -> object:
        """The value in force on a topic: its own, its namespace's or the broker's."""
        found = own.get(self.topic_key)
        if found is None:
            found = self.in_namespace(namespace, config.cluster)
        if found is None and self.default is not None:
            return self.default(config)
        return found


def _store(document: Policies, key: str, value: object) -> None:
    if value is None:
        document.pop(key, None)
    else:
        document[key] = value
