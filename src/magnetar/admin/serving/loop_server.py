"""uvicorn in a loop that others own. Importing this module loads the HTTP stack."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from magnetar.admin.calls.call_places import CallPlaces
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.entrance import Entrance
from magnetar.runtime.tasks import happens_within, race, soon

_KEEP_ALIVE_S: Final = 60
"""Idle connections are kept so long; scrapers ask every 15 to 60 seconds."""
_GRACE_S: Final = 1
"""How long running calls may take when the server stops."""
HEAD_S: Final = 10.0
"""A request's head may take so long, from the opening of the connection or from its first byte on."""
HEAD_LINES_MAX: Final = 256
"""Lines of a request's head, which may have 64 KiB: 12,000 short lines take 240 ms to be read."""
SLICE_BYTES: Final = 8 << 10
"""Bytes of a read that are parsed in one turn of the loop: a body in chunks of one byte takes 1 µs a byte."""
STUCK_S: Final = 60.0
"""A client that takes nothing of its answer for so long is dropped."""
LOOK_S: Final = 1.0
"""Between two looks at all connections, while there are any."""
_CALLERS_MAX: Final = 1_024
"""Connections, without WebSockets; for one more the idle one goes that was silent for longest."""
_SOCKETS_MAX: Final = 1_024
"""Connections at a time, by default."""


def config_of(app: Any, *, calls_per_second: int = 0, **more: Any) -> Config:
    """uvicorn's configuration for an ASGI application, with these options of its own besides; loaded."""
    config = Config(
        CallPlaces(app, calls_per_second),
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        **more,
    )
    config.load()
    return config


class CallProtocol(H11Protocol):
    """uvicorn's connection, which does not wait for ever."""

    order: dict[CallProtocol, None]
    """All connections of the server, the one that was silent for longest first; set by the server."""
    _head_since_s: float | None = None
    """Since when a request's head is awaited; None: none is, or uvicorn's own timer runs."""
    _stuck: tuple[int, float] = (0, 0.0)
    """How much of answers waited for the client when it last took any, and when that was."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._rest = bytearray()  # The bytes of a read that are not parsed yet.
        self.order[self] = None
        self._head_since_s = self.loop.time()
        # Private to h11, which is pinned, and has no other place for it: it matches line after line.
        received: Any = self.conn._receive_buffer
        extract = received.maybe_extract_lines

        def lines_of_head() -> Any:
            lines = extract()
            if lines is not None and len(lines) > HEAD_LINES_MAX:
                raise h11.RemoteProtocolError("a head of very many lines", error_status_hint=431)
            return lines

        received.maybe_extract_lines = lines_of_head

    def data_received(self, data: bytes) -> None:
        """Takes what was read; a large read is parsed in slices, a turn of the loop each, and nothing more is
        read before its last one."""
        if self.order.pop(self, self) is None:
            self.order[self] = None
        if self._rest or len(data) > SLICE_BYTES:
            if not self._rest:
                soon(self._take_slice)
            self._rest += data
            self.transport.pause_reading()
        else:
            self._take(data)

    def _take_slice(self) -> None:
        if self.transport.is_closing():
            self._rest.clear()
            return
        data = bytes(self._rest[:SLICE_BYTES])
        del self._rest[:SLICE_BYTES]
        protocol = self.transport.get_protocol()
        if protocol is self:
            self._take(data)
        else:
            # The connection became a WebSocket's with what came before.
            cast(asyncio.Protocol, protocol).data_received(data)
        if self._rest:
            soon(self._take_slice)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._head_since_s = None
        elif self._head_since_s is None:
            self._head_since_s = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest.clear()
        self.order.pop(self, None)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.order.pop(self, None)
        super().handle_websocket_upgrade(event)

    @property
    def is_idle(self) -> bool:
        """Whether it has no request in work: none has come yet (then uvicorn's types hide a None), or the
        last one is answered."""
        cycle = cast("Any", self.cycle)
        return (cycle is None or cycle.response_complete) and self.conn.their_state is not h11.SEND_BODY

    def look(self, now_s: float) -> None:
        """Ends it when its client takes too long."""
        if self._head_since_s is not None and now_s - self._head_since_s > HEAD_S:
            self.transport.close()
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._stuck[0]:
            self._stuck = unsent, now_s
        elif now_s - self._stuck[1] > STUCK_S:
            self.transport.abort()


class LoopServer(Server):
    """A server without signal handlers, without a loop of its own, and without periodic wake-ups while it is
    idle."""

    def __init__(self, config: Config, entrance: Entrance | None = None) -> None:
        """`config` is of `config_of`, with a CallProtocol; `entrance` counts the sockets."""
        super().__init__(config)
        self._announce = asyncio.Event()
        self._stopped = asyncio.Event()
        self._came = asyncio.Event()
        self._order: dict[CallProtocol, None] = {}
        if entrance is None:
            entrance = Entrance("HTTP", _SOCKETS_MAX, _SOCKETS_MAX // 2)
        self._entrance = entrance

    async def run_on(self, listener: socket.socket, serving: asyncio.Event) -> None:
        """Serves until `stop`; sets `serving` when calls are answered. Closes the socket."""
        self._announce = serving
        await self._serve([listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, with sockets that are counted when they are accepted."""
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = [
            # It has of a server what uvicorn asks for: `close` and `wait_closed`.
            cast(
                asyncio.Server,
                Acceptor(
                    listener,
                    self._entrance,
                    self._protocol,
                    tls=self.config.ssl,
                    handshake_s=HEAD_S,
                    make_room=self._drop_idle,
                ),
            )
            for listener in sockets
        ]
        self.started = True

    def _protocol(self) -> asyncio.BaseProtocol:
        self._came.set()
        if len(self._order) >= _CALLERS_MAX:
            self._drop_idle("")
        made = cast("type[CallProtocol]", self.config.http_protocol_class)(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        made.order = self._order
        return made

    def _drop_idle(self, address: str) -> bool:
        """Ends the connection without a request, of an address or ("") of any, that was silent for longest;
        whether there was one."""
        for connection in self._order:
            if connection.is_idle and (not address or (connection.client or ("",))[0] == address):
                del self._order[connection]
                connection.transport.abort()
                return True
        return False

    async def main_loop(self) -> None:
        """Waits for the end; uvicorn's own loop wakes ten times a second to check for it.

        Closes connections that send no whole request: uvicorn waits for one for ever, and a few hundred such
        connections would use up all places.
        """
        self._announce.set()
        while not self._stopped.is_set():
            if not self._order:
                self._came.clear()
                await race(self._stopped.wait(), self._came.wait())
            await happens_within(self._stopped, LOOK_S)
            now_s = asyncio.get_running_loop().time()
            for connection in list(self._order):
                connection.look(now_s)

    def stop(self) -> None:
        """Lets `run_on` end."""
        self.should_exit = True
        self._stopped.set()
