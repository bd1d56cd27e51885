"""What the proxy shows of its connections."""

from __future__ import annotations

from magnetar.observability.metrics import Exposition
from magnetar.proxy.figures import ProxyFigures, collect


def test_connections_that_the_listener_refused_are_counted() -> None:
    refused = [2]
    figures = ProxyFigures(lambda: sum(refused))
    refused.append(3)
    out = Exposition()
    list(collect(figures, out, active=0, tunnels=0, lookups=0, brokers=1))
    assert "\npulsar_proxy_rejected_connections 5\n" in out.render()
