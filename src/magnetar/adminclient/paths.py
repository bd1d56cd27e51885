"""Paths of the REST API from names. Each part is percent-encoded, so that a name cannot change the path."""

from __future__ import annotations

from urllib.parse import quote

from magnetar.base.names import NamespaceName, TopicName

ROOT = "/admin/v2"


def part(name: str) -> str:
    """One part of a path."""
    return quote(name, safe="")


def tenant(name: str) -> str:
    return f"{ROOT}/tenants/{part(name)}"


def cluster(name: str) -> str:
    return f"{ROOT}/clusters/{part(name)}"


def namespace(name: str) -> str:
    """Path of a namespace `tenant/namespace`. Raises InvalidNamespaceNameError."""
    parsed = NamespaceName.parse(name)
    return f"{ROOT}/namespaces/{part(parsed.tenant)}/{part(parsed.namespace)}"


def _local(name: str | TopicName) -> tuple[TopicName, str]:
    parsed = TopicName.parse(name) if isinstance(name, str) else name
    return parsed, f"{part(parsed.tenant)}/{part(parsed.namespace)}/{part(parsed.local)}"


def topic(name: str | TopicName) -> str:
    """Path of a topic with a full or a short name. Raises InvalidTopicNameError."""
    parsed, local = _local(name)
    return f"{ROOT}/{parsed.domain}/{local}"


def schema(name: str | TopicName) -> str:
    """Path of a topic's schemas. Raises InvalidTopicNameError."""
    return f"{ROOT}/schemas/{_local(name)[1]}"


def lookup(name: str | TopicName) -> str:
    """Path of the lookup of a topic. Raises InvalidTopicNameError."""
    parsed, local = _local(name)
    return f"/lookup/v2/topic/{parsed.domain}/{local}"


def subscription(topic_name: str | TopicName, name: str) -> str:
    """Path of a subscription of a topic. Raises InvalidTopicNameError."""
    return f"{topic(topic_name)}/subscription/{part(name)}"
