"""What the proxy counts, by Pulsar's names of metrics (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar.observability.metrics import Exposition

Count = Callable[[], int]


class ProxyFigures:
    """Counters since the start."""

    __slots__ = ("bytes", "connections", "forged", "lookups", "ops", "refused_lookups", "rejected", "spliced")

    def __init__(self, rejected: Count) -> None:
        """`rejected`: how many connections the entrance refused."""
        self.connections = 0
        """Accepted connections."""
        self.rejected = rejected
        """Connections refused for want of a place, which their listener counts."""
        self.spliced = 0
        """Connections that were passed on to a broker."""
        self.ops = 0
        """Reads that were passed on."""
        self.bytes = 0
        """Bytes that were passed on."""
        self.lookups = 0
        """Questions of clients."""
        self.refused_lookups = 0
        """Questions refused because too many were in work."""
        self.forged = 0
        """Connections that named a broker that is none of the cluster."""


def collect(
    figures: ProxyFigures, out: Exposition, *, active: int, tunnels: int, lookups: int, brokers: int
) -> Iterable[None]:
    """A collector of `/metrics`."""
    gauge, counter = out.gauge, out.counter
    gauge("pulsar_proxy_active_connections", "Open connections of clients.", active)
    counter("pulsar_proxy_new_connections", "Connections of clients.", figures.connections)
    counter(
        "pulsar_proxy_rejected_connections", "Connections refused for want of a place.", figures.rejected()
    )
    counter("pulsar_proxy_binary_ops", "Reads that were passed on, in both directions.", figures.ops)
    counter("pulsar_proxy_binary_bytes", "Bytes that were passed on, in both directions.", figures.bytes)
    counter("pulsar_proxy_lookup_requests", "Questions of clients that brokers were asked.", figures.lookups)
    gauge("magnetar_proxy_tunnels", "Connections that are passed on to brokers.", tunnels)
    gauge("magnetar_proxy_lookups", "Questions in work.", lookups)
    counter("magnetar_proxy_lookups_refused_total", "Questions over the limit.", figures.refused_lookups)
    counter(
        "magnetar_proxy_targets_refused_total",
        "Connections that named a broker that is none of the cluster.",
        figures.forged,
    )
    gauge("magnetar_proxy_brokers", "Brokers that are known to the proxy.", brokers)
    return ()
