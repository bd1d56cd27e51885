"""Metrics of the metadata service that a process shares with others."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_ONLY: Final = "with `--metadata zk://…` or `etcd://…` (docs/cluster.md)"

METADATA_SERVICE: Final = Section(
    "Metadata service",
    (
        gauge(
            "magnetar_metadata_service_connected",
            "",
            (),
            "Whether ZooKeeper or etcd can be reached: 0 or 1.",
            _ONLY,
        ),
        counter(
            "magnetar_metadata_service_outages_total",
            "",
            (),
            "How often contact with ZooKeeper or etcd was lost.",
            _ONLY,
        ),
    ),
)
