"""Metrics of a broker that shares its load with others, by Pulsar's names."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section, counter, gauge

_L: Final = ("cluster", "broker")
_ONLY: Final = "of one of several brokers (docs/cluster.md)"

LOAD: Final = Section(
    "Load of brokers",
    (
        gauge(
            "pulsar_lb_cpu_usage",
            "",
            _L,
            "Percent of one core that the broker used, as last reported.",
            _ONLY,
        ),
        gauge("pulsar_lb_memory_usage", "", _L, "Resident memory, in percent of the machine's.", _ONLY),
        gauge("pulsar_lb_bandwidth_in_usage", "bytes per second", _L, "Bytes published.", _ONLY),
        gauge("pulsar_lb_bandwidth_out_usage", "bytes per second", _L, "Bytes delivered.", _ONLY),
        counter(
            "pulsar_lb_unload_broker_total",
            "",
            _L,
            "Decisions of this broker, as leader, by which bundles left brokers.",
            _ONLY,
        ),
        counter(
            "pulsar_lb_unload_bundle_total",
            "",
            _L,
            "Bundles that this broker, as leader, has had moved.",
            _ONLY,
        ),
        counter("pulsar_lb_bundles_split_total", "", _L, "Bundles that this broker has split.", _ONLY),
        gauge("magnetar_lb_leads", "", _L, "Whether this broker evens the load of all: 0 or 1.", _ONLY),
    ),
)
