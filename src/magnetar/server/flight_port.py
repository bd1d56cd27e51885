"""The port of Arrow Flight SQL: off by default, bound with the others, loaded after them."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.base.errors import StartupError
from magnetar.server.addresses import in_url

if TYPE_CHECKING:
    import ssl

    from magnetar.admin.serving.server import SharedByPorts
    from magnetar.broker.service import Broker
    from magnetar.flightsql.server import FlightServer
    from magnetar.server.security.credential_files import BrokerCredentials
    from magnetar.server.settings.config import StandaloneConfig


@dataclass(frozen=True, slots=True)
class FlightPort:
    """A port that is bound, and answers nothing yet."""

    listener: socket.socket
    tls: ssl.SSLContext | None
    """None: without TLS."""
    host: str

    @property
    def url(self) -> str:
        """In the form of Arrow Flight."""
        scheme = "grpc" if self.tls is None else "grpc+tls"
        return f"{scheme}://{in_url(self.host)}:{self.listener.getsockname()[1]}"

    def served(
        self, broker: Broker, shared: SharedByPorts, cleanup: contextlib.AsyncExitStack
    ) -> FlightServer:
        """Its server, whose `serve` begins; `cleanup` stops it."""
        # A broker without this port loads none of it.
        from magnetar.flightsql.server import FlightServer

        server = FlightServer(broker, self.listener, shared.queries, tls=self.tls)
        broker.collectors.append(server.entrance.collect_metrics)
        cleanup.push_async_callback(server.stop)
        return server


def bound_flight_port(
    config: StandaloneConfig,
    credentials: BrokerCredentials | None,
    bind: Callable[[str, int, str], socket.socket],
) -> FlightPort | None:
    """None: it is off. With TLS it takes nothing else, as clients of gRPC know one port. Raises
    StartupError."""
    if not config.flight_sql:
        return None
    if importlib.util.find_spec("h2") is None:
        raise StartupError(
            "flight_sql needs h2: pip install '.[flight]' in a clone, or set flight_sql = false"
        )
    tls = None if credentials is None else credentials.flight_tls
    host = config.host if tls is not None else config.plain_host or config.host
    return FlightPort(bind(host, config.flight_sql_port, "flight_sql_port"), tls, host)
