"""The broker's HTTP server. Importing this module loads the HTTP stack: see `server.py`."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from typing import cast

from magnetar.admin.calls import other_brokers
from magnetar.admin.calls.call import Service
from magnetar.admin.calls.rates import Rates
from magnetar.admin.metrics.broker_metrics import registry_for
from magnetar.admin.routes import all_routes
from magnetar.admin.serving.app import build
from magnetar.admin.serving.certified_calls import CertifiedCalls
from magnetar.admin.serving.loop_server import LoopServer, config_of
from magnetar.admin.serving.websockets import PING_S, PONG_S, TEXT_BESIDE_BYTES, Gate, Upgrades
from magnetar.broker.service import Broker
from magnetar.runtime.entrance import Entrance
from magnetar.sql.serving.query_places import QueryPlaces


class HttpServer(LoopServer):
    """The broker's HTTP server."""

    def __init__(
        self,
        broker: Broker,
        *,
        http_port: int,
        loopback_only: bool,
        ssl_context: ssl.SSLContext | None = None,
        entrance: Entrance | None = None,
        queries: QueryPlaces | None = None,
    ) -> None:
        """`ssl_context`: serves HTTPS with it; `entrance` counts the sockets; `queries`: those of all admin
        ports of the broker, which its maker closes; None: this one has its own."""
        self._queries = None if queries is not None else QueryPlaces(broker.config.queries)
        service = Service(
            Rates(broker.clock, broker.clock_watch.began_ms),
            http_port=http_port,
            loopback_only=loopback_only,
            exchanged=partial(other_brokers.send, trust_certs=broker.config.trust_certs),
            queries=queries or cast(QueryPlaces, self._queries),
        )
        gate = Gate(broker, service)
        app = build(broker, service, all_routes(registry_for(broker)), gate)
        self._upgrades = Upgrades(broker.turns)
        config = config_of(
            app,
            calls_per_second=broker.config.http_calls_per_second,
            http=CertifiedCalls,
            ws=self._upgrades,
            ws_max_size=broker.config.message_bytes_max * 4 // 3 + TEXT_BESIDE_BYTES,
            # Compressing a large text would block all other clients for a tenth of a second.
            ws_per_message_deflate=False,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_S,
        )
        config.ssl = ssl_context
        super().__init__(config, entrance)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the WebSockets, which uvicorn does not know, and queries, then shuts uvicorn down."""
        await self._upgrades.shutdown()
        if self._queries is not None:
            await self._queries.close()
        await super().shutdown(sockets)
