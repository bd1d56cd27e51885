"""Metrics of tenants."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import gauge as _g

_OF: Final = ("cluster", "tenant")
_LIMITED: Final = "where a tenant has a limit of stored bytes"

TENANTS: Final = Section(
    "Tenants",
    (
        _g(
            "magnetar_tenant_stored_bytes",
            "bytes",
            _OF,
            "Bytes that a tenant stores over all its topics, offloaded ones included.",
            _LIMITED,
        ),
        _g(
            "magnetar_tenant_stored_bytes_max",
            "bytes",
            _OF,
            "Limit of magnetar_tenant_stored_bytes; above it the tenant's producers are refused.",
            _LIMITED,
        ),
    ),
)
