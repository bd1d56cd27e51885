"""The HTTP server itself. Importing this module loads the HTTP stack: see `server.py`."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from uvicorn.config import Config
from uvicorn.server import Server

from magnetar.admin.app import build
from magnetar.admin.call import Service
from magnetar.admin.metrics import registry_for
from magnetar.admin.routes import all_routes
from magnetar.broker.service import Broker

_KEEP_ALIVE_S: Final = 60
"""Idle connections are kept so long; scrapers ask every 15 to 60 seconds."""
_GRACE_S: Final = 1
"""How long running calls may take when the server stops."""
_CALLS_MAX: Final = 256
"""Connections served at a time; more are answered 503."""


class HttpServer(Server):
    """uvicorn in a loop that others own: no signal handlers, no loop of its own, no ticking."""

    def __init__(self, broker: Broker, *, http_port: int, loopback_only: bool) -> None:
        service = Service(http_port=http_port, loopback_only=loopback_only)
        app = build(broker, service, all_routes(registry_for(broker)))
        super().__init__(
            Config(
                app,
                http="h11",
                ws="none",
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
        )
        self._stopped = asyncio.Event()

    async def run_on(self, listener: socket.socket, serving: asyncio.Event) -> None:
        """Serves until `stop`; sets `serving` when calls are answered. Closes the socket."""
        self._announce = serving
        await self._serve([listener])

    async def main_loop(self) -> None:
        """Waits for the end; uvicorn's own loop wakes ten times a second to look for it."""
        self._announce.set()
        await self._stopped.wait()

    def stop(self) -> None:
        """Lets `run_on` end."""
        self.should_exit = True
        self._stopped.set()
