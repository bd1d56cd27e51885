"""uvicorn in a loop that others own. Importing this module loads the HTTP stack."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import Server

_KEEP_ALIVE_S: Final = 60
"""Idle connections are kept so long; scrapers ask every 15 to 60 seconds."""
_GRACE_S: Final = 1
"""How long running calls may take when the server stops."""
REQUEST_S: Final = 60.0
"""A connection may take so long, twice at most, until its request is complete."""
_CALLS_MAX: Final = 256
"""Connections served at a time; more are answered 503."""


def config_of(app: Any, **more: Any) -> Config:
    """uvicorn's configuration for an ASGI application, with these options of its own besides; loaded."""
    config = Config(
        app,
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
        **more,
    )
    config.load()
    return config


class LoopServer(Server):
    """No signal handlers, no loop of its own, no ticking."""

    def __init__(self, config: Config) -> None:
        """`config` is of `config_of`."""
        super().__init__(config)
        self._announce = asyncio.Event()
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

    def stop(self) -> None:
        """Lets `run_on` end."""
        self.should_exit = True
        self._stopped.set()


def _is_over(cycle: RequestResponseCycle | None) -> bool:
    """Whether a connection has no request yet (None, which uvicorn's types hide) or has answered
    its last one."""
    return cycle is None or cycle.response_complete
