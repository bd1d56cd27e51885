"""Metrics of the proxy. A metric with Pulsar's name has the same meaning there."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_ONLY: Final = "of `magnetar proxy` (docs/proxy.md)"

PROXY: Final = Section(
    "Proxy",
    (
        gauge("pulsar_proxy_active_connections", "", (), "Open connections of clients.", _ONLY),
        counter("pulsar_proxy_new_connections", "", (), "Connections of clients.", _ONLY),
        counter(
            "pulsar_proxy_rejected_connections", "", (), "Connections refused for want of a place.", _ONLY
        ),
        counter("pulsar_proxy_binary_ops", "", (), "Reads that were passed on, in both directions.", _ONLY),
        counter(
            "pulsar_proxy_binary_bytes",
            "bytes",
            (),
            "Bytes that were passed on, in both directions.",
            _ONLY,
        ),
        counter(
            "pulsar_proxy_lookup_requests", "", (), "Questions of clients that brokers were asked.", _ONLY
        ),
        gauge("magnetar_proxy_tunnels", "", (), "Connections that are passed on to brokers.", _ONLY),
        gauge("magnetar_proxy_lookups", "", (), "Questions in work.", _ONLY),
        counter("magnetar_proxy_lookups_refused_total", "", (), "Questions over the limit.", _ONLY),
        counter(
            "magnetar_proxy_targets_refused_total",
            "",
            (),
            "Connections that named a broker that is none of the cluster.",
            _ONLY,
        ),
        gauge("magnetar_proxy_brokers", "", (), "Brokers that are known to the proxy.", _ONLY),
    ),
)
