"""Pages for browsers and load balancers."""

from __future__ import annotations

from magnetar import __version__
from magnetar.admin.calls.call import Call, Route, Text
from magnetar.broker.errors import ServiceNotReadyError


async def status(call: Call) -> object:
    """OK while the broker accepts clients; for load balancers."""
    if call.broker.draining:
        raise ServiceNotReadyError("the broker is shutting down")
    return Text("OK")


async def index(call: Call) -> object:
    return Text(
        f"Magnetar {__version__}, cluster {call.broker.config.cluster}\n"
        "\n"
        "/admin/v2/...            Pulsar's admin API\n"
        "/admin/v2/brokers/health publishes a message, durably, and reads it back\n"
        "/lookup/v2/topic/...     which broker serves a topic\n"
        "/metrics                 for Prometheus\n"
        "/openapi.json            every path, as OpenAPI has it\n"
        "/status.html             for load balancers\n"
    )


ROUTES: list[Route] = [
    ("GET", "/", index),
    ("GET", "/status.html", status),
]
