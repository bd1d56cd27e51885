"""The HTTP server itself. Importing this module loads the HTTP stack: see `server.py`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import Server

from magnetar.admin.access import STATE_CERTIFICATE_ROLE
from magnetar.admin.app import build
from magnetar.admin.call import Service
from magnetar.admin.metrics import registry_for
from magnetar.admin.routes import all_routes
from magnetar.admin.websockets import PING_S, PONG_S, TEXT_BESIDE_BYTES, Gate, Upgrades
from magnetar.auth.identity import certificate_role
from magnetar.broker.service import Broker

_KEEP_ALIVE_S: Final = 60
"""Idle connections are kept so long; scrapers ask every 15 to 60 seconds."""
_GRACE_S: Final = 1
"""How long running calls may take when the server stops."""
REQUEST_S: Final = 60.0
"""A connection may take so long, twice at most, until its request is complete."""
_CALLS_MAX: Final = 256
"""Connections served at a time; more are answered 503."""


class _Protocol(H11Protocol):
    """Tells the application the role in the client's certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        role = certificate_role(transport.get_extra_info("peercert"))
        if role is not None:
            self.app_state = {**self.app_state, STATE_CERTIFICATE_ROLE: role}


class HttpServer(Server):
    """uvicorn in a loop that others own: no signal handlers, no loop of its own, no ticking."""

    def __init__(
        self,
        broker: Broker,
        *,
        http_port: int,
        loopback_only: bool,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`ssl_context`: serves HTTPS with it."""
        service = Service(http_port=http_port, loopback_only=loopback_only)
        gate = Gate(broker, service)
        app = build(broker, service, all_routes(registry_for(broker)), gate)
        self._upgrades = Upgrades()
        config = Config(
            app,
            http=_Protocol,
            ws=self._upgrades,  # type: ignore[arg-type]  # it is called, as a class would be
            ws_max_size=broker.config.message_bytes_max * 4 // 3 + TEXT_BESIDE_BYTES,
            # Compressing a large text would hold up everybody else for a tenth of a second.
            ws_per_message_deflate=False,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_S,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_CALLS_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        config.load()
        config.ssl = ssl_context
        super().__init__(config)
        self._stopped = asyncio.Event()

    async def run_on(self, listener: socket.socket, serving: asyncio.Event) -> None:
        """Serves until `stop`; sets `serving` when calls are answered. Closes the socket."""
        self._announce = serving
        await self._serve([listener])

    async def main_loop(self) -> None:
        """Waits for the end; uvicorn's own loop wakes ten times a second to look for it.

        Closes what sends no whole request: uvicorn waits for one for ever, and a few hundred such
        connections would keep everyone else out.
        """
        self._announce.set()
        silent: set[tuple[H11Protocol, object]] = set()
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), REQUEST_S)
            waiting: set[tuple[H11Protocol, object]] = {
                # With its last request: who has had another one since the look before is not silent.
                (one, one.cycle)
                for one in self.server_state.connections
                if isinstance(one, H11Protocol) and _is_over(one.cycle)
            }
            for connection, _ in silent & waiting:
                connection.transport.close()
            silent = waiting

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, after the WebSockets, of which it does not know."""
        await self._upgrades.shutdown()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Lets `run_on` end."""
        self.should_exit = True
        self._stopped.set()


def _is_over(cycle: RequestResponseCycle | None) -> bool:
    """Whether a connection has no request yet (None, which uvicorn's types hide) or has answered
    its last one."""
    return cycle is None or cycle.response_complete
