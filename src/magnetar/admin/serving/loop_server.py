"""Runs uvicorn in an existing event loop. Importing this module loads the HTTP stack."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, cast
from weakref import ref

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import Server

from magnetar.admin.calls.call_places import CallPlaces
from magnetar.admin.serving.streaming import STATE_CUT
from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.entrance import Entrance
from magnetar.runtime.tasks import happens_within, race, soon

_KEEP_ALIVE_S: Final = 60
"""Seconds for which idle connections are kept; scrapers call every 15 to 60 seconds."""
_GRACE_S: Final = 1
"""Seconds for running calls when the server stops."""
HEAD_S: Final = 10.0
"""Seconds for the head of a request, from the opening of the connection or from its first byte on."""
HEAD_LINES_MAX: Final = 256
"""Most lines of a request's head. A head may have 64 KiB, and 12,000 short lines take 240 ms to parse."""
SLICE_BYTES: Final = 4 << 10
"""Bytes that a connection parses at a time; a body in chunks of one byte takes 1 µs per byte."""
_SHARES: Final = ShareSizes(per_read=1, per_turn=1, turn_ms=1.0)
"""Time in a turn for the slices of all connections: sixteen took 34 ms when each parsed one."""
STUCK_S: Final = 60.0
"""Seconds without progress after which a client that does not read its answer is disconnected."""
LOOK_S: Final = 1.0
"""Seconds between two checks of all connections, while there are any."""
_CALLERS_MAX: Final = 1_024
"""Most connections without WebSockets. One more closes the connection that has been idle for longest."""
_SOCKETS_MAX: Final = 1_024
"""Default of the most connections at a time."""


def config_of(app: Any, *, calls_per_second: int = 0, **more: Any) -> Config:
    """A loaded configuration of uvicorn for an ASGI application. `more`: further options of uvicorn."""
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


_Cycle = RequestResponseCycle | None
"""A request in work; None before the first. uvicorn declares it without the None."""


class _Flow(FlowControl):
    """uvicorn's flow of reads and writes. Each call that asks for its body, or waits for its client to go,
    resumes reading; whether that is done is the connection's decision."""

    def __init__(self, connection: CallProtocol) -> None:
        super().__init__(connection.transport)
        self._connection: Final = ref(connection)

    def resume_reading(self) -> None:
        self.read_paused = False
        if (connection := self._connection()) is not None:
            connection.settle()


class CallProtocol(H11Protocol):
    """uvicorn's connection, with bounded waits."""

    turns: LoopShares
    """The shares of a turn of the loop in which requests are parsed; set by the server."""
    order: dict[CallProtocol, None]
    """All connections of the server in the order of their last activity; set by the server."""
    _head_since_s: float | None = None
    """Time since which a request's head is awaited; None when none is, or uvicorn's own timer runs."""
    _stuck: tuple[int, float] = (0, 0.0)
    """Unsent bytes of answers when the client last took some, and the time of that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.app_state = {**self.app_state, STATE_CUT: transport.close}
        self.flow = _Flow(self)
        self._rest = bytearray()  # What was read and is not parsed yet: a read, and what came beside it.
        self._parses = False  # Whether a turn of the loop is going to parse a part of it.
        self.order[self] = None
        self._head_since_s = self.loop.time()
        # Private to h11, which is pinned, and has no other place for it: it matches line after line.
        received: Any = self.conn._receive_buffer
        extract = received.maybe_extract_lines

        def lines_of_head() -> object:
            lines = extract()
            if lines is not None and len(lines) > HEAD_LINES_MAX:
                raise h11.RemoteProtocolError("a head of very many lines", error_status_hint=431)
            return lines

        received.maybe_extract_lines = lines_of_head

    def data_received(self, data: bytes) -> None:
        """Parses the read bytes. A large read is parsed in slices, in turns with other connections;
        reading pauses until the last one. Bytes behind a request are parsed after its answer."""
        if self.order.pop(self, self) is None:
            self.order[self] = None
        if self._rest or len(data) > SLICE_BYTES or self._is_ahead:
            self._rest += data
        else:
            self._take(data)
        self.settle()

    @property
    def _is_ahead(self) -> bool:
        """Whether what comes now belongs to a request behind the one that is in work."""
        cycle = cast(_Cycle, self.cycle)
        return self.conn.their_state is h11.DONE and cycle is not None and not cycle.response_complete

    def settle(self) -> None:
        """Parses on or reads on, unless uvicorn or a request in work does not want that.

        A client that writes requests and does not wait for answers would otherwise be read by a quarter of a
        megabyte for each answer, and all of that kept.
        """
        if self.transport.is_closing():
            self._rest.clear()
        elif not self._rest:
            if not self.flow.read_paused:
                self.transport.resume_reading()
        else:
            self.transport.pause_reading()
            if not self._parses and self._wants_more:
                self._parses = True
                self.turns.wait(self._address, self)

    @property
    def _wants_more(self) -> bool:
        if self.transport.get_protocol() is not self:
            return True  # The connection became a WebSocket's with what came before.
        return not (self.flow.read_paused or self._is_ahead)

    @property
    def _address(self) -> str:
        return (self.client or ("",))[0]

    def go_on(self) -> None:
        """Its turn: parses a slice of what was read."""
        self._parses = False
        # Asked again: an answer that ended since may have begun the next request.
        if self._rest and self._wants_more and not self.transport.is_closing():
            data = bytes(self._rest[:SLICE_BYTES])
            del self._rest[:SLICE_BYTES]
            protocol = self.transport.get_protocol()
            try:
                if protocol is self:
                    self._take(data)
                else:
                    cast(asyncio.Protocol, protocol).data_received(data)
            except BaseException:
                # As the loop does after a read. It would not be read any more, and be open for ever.
                self.transport.abort()
                raise
        self.settle()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP. Where the answer has begun, h11 permits no second one: a client whose
        body is wrong after that is disconnected."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.settle()

    def _take(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._head_since_s = None
        elif self._head_since_s is None:
            self._head_since_s = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest.clear()
        self.turns.forget(self._address, self)
        self.order.pop(self, None)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.order.pop(self, None)
        super().handle_websocket_upgrade(event)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in work: none has come yet (uvicorn's types hide the None), or the last one
        is answered."""
        cycle = cast(_Cycle, self.cycle)
        return (cycle is None or cycle.response_complete) and self.conn.their_state is not h11.SEND_BODY

    def look(self, now_s: float) -> None:
        """Closes the connection when its client takes too long."""
        if self._head_since_s is not None and now_s - self._head_since_s > HEAD_S:
            self.transport.close()
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._stuck[0]:
            self._stuck = unsent, now_s
        elif now_s - self._stuck[1] > STUCK_S:
            self.transport.abort()


class LoopServer(Server):
    """A uvicorn server without signal handlers, without its own loop, and without periodic wake-ups while
    idle."""

    def __init__(self, config: Config, entrance: Entrance | None = None) -> None:
        """`config`: from `config_of`, with a CallProtocol. `entrance` counts the sockets."""
        super().__init__(config)
        self._announce = asyncio.Event()
        self._stopped = asyncio.Event()
        self._came = asyncio.Event()
        self._order: dict[CallProtocol, None] = {}
        self._turns = LoopShares(soon, SystemClock().monotonic_ms, _SHARES)
        if entrance is None:
            entrance = Entrance("HTTP", _SOCKETS_MAX, _SOCKETS_MAX // 2)
        self._entrance = entrance

    async def run_on(self, listener: socket.socket, serving: asyncio.Event) -> None:
        """Serves until `stop`; sets `serving` when calls are answered. Closes the socket at the end."""
        self._announce = serving
        await self._serve([listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but counts sockets when they are accepted."""
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
        made.turns = self._turns
        return made

    def _drop_idle(self, address: str) -> bool:
        """Closes the connection that has been idle for longest, of an address or ("") of any; returns whether
        there was one."""
        for connection in self._order:
            if connection.is_idle and (not address or connection._address == address):
                del self._order[connection]
                connection.transport.abort()
                return True
        return False

    async def main_loop(self) -> None:
        """Waits for the end of the server; uvicorn's own loop would wake up ten times a second for that.

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
        """Ends `run_on`."""
        self.should_exit = True
        self._stopped.set()
