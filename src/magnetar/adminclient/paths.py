"""Paths of the REST API from names. Each part is percent-encoded, so that a name cannot change the path."""

from __future__ import annotations

from urllib.parse import quote

from magnetar.base.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    InvalidNameError,
    NamespaceName,
    TopicName,
)

ROOT = "/admin/v2"
FUNCTIONS = "/admin/v3/functions"
PACKAGES = "/admin/v3/packages"


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


def functions(namespace_name: str) -> str:
    """Path of the functions of a namespace. Raises InvalidNamespaceNameError."""
    return f"{FUNCTIONS}/{_namespace(namespace_name)}"


def function(name: str) -> str:
    """Path of a function `name` or `tenant/namespace/name`. Raises InvalidNameError."""
    return f"{FUNCTIONS}/{_in_namespace(name)}"


def packages(namespace_name: str, kind: str = "function") -> str:
    """Path of the packages of a type in a namespace. Raises InvalidNamespaceNameError."""
    return f"{PACKAGES}/{part(kind)}/{_namespace(namespace_name)}"


def package(name: str, kind: str = "function") -> str:
    """Path of a package `name` or `tenant/namespace/name`. Raises InvalidNameError."""
    return f"{PACKAGES}/{part(kind)}/{_in_namespace(name)}"


def _namespace(name: str) -> str:
    parsed = NamespaceName.parse(name)
    return f"{part(parsed.tenant)}/{part(parsed.namespace)}"


def _in_namespace(name: str) -> str:
    """A short name is one of `public/default`. Raises InvalidNameError."""
    parts = name.split("/")
    if len(parts) == 1:
        return f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}/{part(name)}"
    if len(parts) != 3:
        raise InvalidNameError(name, "write NAME or TENANT/NAMESPACE/NAME")
    return f"{_namespace('/'.join(parts[:2]))}/{part(parts[2])}"
