"""Translates paths of the first generation of Pulsar's admin API, which have a cluster after the tenant
(pure).

    /admin/properties/...                                     /admin/v2/tenants/...
    /admin/{clusters|brokers|broker-stats}/...                the same below /admin/v2
    /admin/namespaces/{tenant}/{cluster}/{namespace}/...      /admin/v2/namespaces/{tenant}/{namespace}/...
    /admin/{domain}/{tenant}/{cluster}/{namespace}/...        /admin/v2/{domain}/{tenant}/{namespace}/...
    /admin/v2/schemas/{tenant}/{cluster}/{namespace}/{topic}/schema...
    /lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}

Names of the first generation are not supported. A path with this cluster means the path without it; a path
with another cluster names nothing here.

Source: Pulsar's admin API, v1.
"""

from __future__ import annotations

from typing import Final

_SAME: Final = ("clusters", "brokers", "broker-stats", "resource-quotas")
_DOMAINS: Final = ("persistent", "non-persistent")
_OF_SCHEMAS: Final = ("schema", "schemas", "compatibility", "version")
_GLOBAL: Final = "global"
"""The cluster in names that belong to several clusters."""


def present_path(path: str, cluster: str) -> str:
    """The present path for an old one; other paths are returned unchanged."""
    parts = path.split("/")[1:]
    if parts[:2] == ["admin", "v2"]:
        return _schemas(path, parts, cluster)
    if parts[:3] == ["lookup", "v2", "destination"]:
        rest = _without_cluster(parts[3:], 2, cluster)
        return path if rest is None else "/".join(("/lookup/v2/topic", *rest))
    if parts[:1] != ["admin"] or len(parts) < 2:
        return path
    kind, rest = parts[1], parts[2:]
    if kind in ("properties", "tenants"):
        return "/".join(("/admin/v2/tenants", *rest))
    if kind in _SAME:
        return "/".join((f"/admin/v2/{kind}", *rest))
    if kind == "namespaces" and len(rest) < 2:
        return "/".join(("/admin/v2/namespaces", *rest))
    if kind == "namespaces" or kind in _DOMAINS:
        named = _without_cluster(rest, 1, cluster)
        return path if named is None else "/".join((f"/admin/v2/{kind}", *named))
    return path


def _schemas(path: str, parts: list[str], cluster: str) -> str:
    if parts[2:3] != ["schemas"] or len(parts) < 8 or parts[6] in _OF_SCHEMAS:
        return path
    rest = _without_cluster(parts[3:], 1, cluster)
    return path if rest is None else "/".join(("/admin/v2/schemas", *rest))


def _without_cluster(parts: list[str], at: int, cluster: str) -> list[str] | None:
    """The parts without the cluster at index `at`; None when it is another cluster."""
    if parts[at : at + 1] not in ([cluster], [_GLOBAL]):
        return None
    return [*parts[:at], *parts[at + 1 :]]
