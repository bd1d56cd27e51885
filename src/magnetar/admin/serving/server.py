"""Drives the admin service: a listening socket and an HTTP server in the broker's event loop.

The start has two steps, because importing the HTTP stack takes as long as starting the rest of a broker.
First the port is bound and listens, so that a port in use is detected at once and early calls wait in the
backlog. Then the imports run in a thread while the broker already serves its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import StartupError
from magnetar.base.query_bounds import QueryBounds
from magnetar.broker.service import Broker
from magnetar.runtime.entrance import Entrance
from magnetar.runtime.tasks import begin, ended, race
from magnetar.runtime.threads import in_thread

if TYPE_CHECKING:
    import ssl

    from magnetar.admin.serving.http_server import HttpServer
    from magnetar.sql.serving.query_places import QueryPlaces

_log = logging.getLogger("magnetar.admin")

_BACKLOG: Final = 256
"""Most connections that wait to be accepted."""


@dataclass(slots=True)
class SharedByPorts:
    """What all admin ports of a broker have together. Its maker closes it."""

    entrance: Entrance
    """Counts their sockets."""
    bounds: QueryBounds
    """Of their queries."""
    _queries: QueryPlaces | None = None

    def queries(self) -> QueryPlaces:
        """Runs their queries. It is loaded with the HTTP stack, as no query comes before."""
        from magnetar.sql.serving.query_places import QueryPlaces

        if self._queries is None:
            self._queries = QueryPlaces(self.bounds)
        return self._queries

    async def close(self) -> None:
        """Ends all queries."""
        if self._queries is not None:
            await self._queries.close()


class AdminServer:
    """The admin API, metrics and lookups over HTTP."""

    def __init__(
        self,
        broker: Broker,
        *,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
        shared: SharedByPorts | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        """`port` 0 takes a free one; `ssl_context`: serves HTTPS with it; `shared`: with other ports of the
        broker, None: with none. `listener` listens already, and `host` and `port` are its own; it is closed
        in the end."""
        self._shared = shared
        self._ssl_context = ssl_context
        self._broker = broker
        self._host = host
        self._port = port
        self._task: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self._socket = listener
        self._serving = asyncio.Event()

    def listen(self) -> int:
        """Binds and returns the port; calls wait until `serve`.

        Raises StartupError when the address cannot be used.
        """
        if self._socket is None:
            self._socket = _listen(self._host, self._port)
        return int(self._socket.getsockname()[1])

    def serve(self) -> None:
        """Starts to load the HTTP stack; calls are answered once it is loaded."""
        assert self._socket is not None, "listen comes first"
        port = int(self._socket.getsockname()[1])
        self._task = begin(self._serve(self._socket, port))
        self._task.add_done_callback(_tell_failure)

    async def start(self) -> int:
        """Calls `listen`, then `serve`; returns the port."""
        port = self.listen()
        self.serve()
        return port

    async def serving(self) -> None:
        """Waits until calls are answered, or never will be, and until the library of WebSockets is loaded.
        Loading it in the first handshake would block the event loop for 30 ms."""
        task = self._task
        if task is None:
            return
        await race(self._serving.wait(), ended(task))
        if self._broker.config.websocket_enabled and not task.done():
            await in_thread(_import_sockets)

    async def stop(self) -> None:
        """Takes no more calls, and finishes running ones for a second at most."""
        task, self._task = self._task, None
        if task is not None:
            if self._server is not None:
                self._server.stop()
            else:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # cancelled just above
                await ended(task)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _serve(self, listener: socket.socket, port: int) -> None:
        http_server = await in_thread(_import_stack)
        self._server = http_server(
            self._broker,
            http_port=port,
            loopback_only=_is_loopback(listener.getsockname()[0]),
            ssl_context=self._ssl_context,
            entrance=None if self._shared is None else self._shared.entrance,
            queries=None if self._shared is None else self._shared.queries(),
        )
        await self._server.run_on(listener, self._serving)


def _import_stack() -> type[HttpServer]:
    from magnetar.admin.serving.http_server import HttpServer

    return HttpServer


def _import_sockets() -> None:
    import magnetar.admin.serving.socket_protocol
    import magnetar.websocket.app  # noqa: F401  # all that matters is that it is loaded


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the admin service has ended: %s", error, exc_info=error)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket on the first address of `host`. Raises StartupError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(f"host {host!r} is unknown; give an address of this machine") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(_cause(error, host, port)) from error
    listener.setblocking(False)
    return listener


def _cause(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use on {host}; stop the process that has it or pass --http-port"
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user; pass --http-port with a number above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror}; give another address or pass --http-port"
