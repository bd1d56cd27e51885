"""uvicorn's WebSocket, put right in one place. Importing this module loads the library for WebSockets.

The library reads all frames of a read at once, and a read holds forty thousand PINGs. Here what was read is
handed to it in pieces, one a turn of the event loop: small ones while they are full of control frames, large
ones otherwise. Nothing is handed on while answers wait for the client, or messages for the application.
"""

from __future__ import annotations

import asyncio
from asyncio import Transport
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from magnetar.runtime.tasks import call_later
from magnetar.websocket.app import ABORT, GONE

_LAST_WORDS_S: Final = 10.0
"""Time to take what was sent before the end."""
_PIECE_BYTES_MIN: Final = 128
_PIECE_BYTES_MAX: Final = 256 << 10
_PINGS_MAX: Final = 16
"""PINGs of a piece above which the next one is smaller."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    _rest = b""
    """What was read and not handed on yet."""
    _piece_bytes = 4_096
    _pings = 0
    _due = False
    _held = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._gone = asyncio.Event()
        super().connection_made(transport)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # The handshake is over, with an answer; uvicorn would complain that there was none.
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        extensions: dict[str, Any] = self.scope.setdefault("extensions", {})
        extensions |= {ABORT: self.transport.abort, GONE: self._gone.wait}
        await super().run_asgi()
        # What waits to be sent keeps a closed transport, for as long as the client takes nothing of it.
        call_later(_LAST_WORDS_S, self.transport.abort)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._settle()
        return message

    def data_received(self, data: bytes) -> None:
        self._rest = self._rest + data if self._rest else data
        if not self._due:
            self._hand_on()

    def handle_ping(self) -> None:
        self._pings += 1
        super().handle_ping()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest = b""
        self._gone.set()
        super().connection_lost(exc)

    def _hand_on(self) -> None:
        piece, self._rest = self._rest[: self._piece_bytes], self._rest[self._piece_bytes :]
        self._pings = 0
        super().data_received(piece)
        if self._pings > _PINGS_MAX:
            self._piece_bytes = max(_PIECE_BYTES_MIN, self._piece_bytes // 4)
        elif not self._pings:
            self._piece_bytes = min(_PIECE_BYTES_MAX, self._piece_bytes * 2)
        self._settle()

    def _settle(self) -> None:
        """Nothing is read while something waits; the rest is handed on in a later turn."""
        transport, takes = self.transport, self.writable.is_set()
        if transport.is_closing():
            return
        if self._rest or not takes:
            self._held = True
            if transport.is_reading():
                transport.pause_reading()
            if self._rest and takes and not self.read_paused and not self._due:
                self._due = True
                self.loop.call_soon(self._go_on)
        elif self._held and not self.read_paused:
            self._held = False
            if not transport.is_reading():
                transport.resume_reading()

    def _go_on(self) -> None:
        self._due = False
        if self._rest and self.writable.is_set() and not self.read_paused:
            self._hand_on()
        else:
            self._settle()
