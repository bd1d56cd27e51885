"""uvicorn's WebSocket with bounded work per turn. Importing this module loads the library for WebSockets.

The library handles all frames of a read at once, and a read may hold forty thousand PINGs. Here it gets a few
frames at a time, and all WebSockets take turns with the commands of other clients, address by address. It
gets no frames while answers wait for the client, or messages for the application.
"""

from __future__ import annotations

import asyncio
from asyncio import Transport
from collections.abc import Mapping
from typing import Final, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from magnetar.broker.session.command_turns import CommandTurns
from magnetar.runtime.tasks import call_later
from magnetar.websocket.app import ABORT, GONE, MORE
from magnetar.websocket.pieces import SocketPieces

_LAST_WORDS_S: Final = 10.0
"""Seconds for the client to take the last bytes before the end."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    turns: CommandTurns
    """The broker's turns; set before the first read."""
    _due = False
    _held = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._gone = asyncio.Event()
        self._pieces = SocketPieces()
        super().connection_made(transport)
        self._owner = self.client[0] if self.client else ""

    async def send(self, message: ASGISendEvent) -> None:
        if MORE in message:
            await self._send_piece(cast("Mapping[str, object]", message))
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # The handshake is over, with an answer; uvicorn would complain that there was none.
            self.handshake_complete = True

    async def _send_piece(self, message: Mapping[str, object]) -> None:
        """Sends a frame of a text of several: one frame of 90 MB took 200 ms, for it is copied four times."""
        await self.writable.wait()
        if self.disconnected:
            raise ClientDisconnected
        if self.close_sent:
            # As uvicorn refuses whole texts.
            raise RuntimeError("a piece of a text after the end of the socket")
        data, fin = str(message["text"]).encode(), not message[MORE]
        try:
            if self.conn.expect_continuation_frame:
                self.conn.send_continuation(data, fin)
            else:
                self.conn.send_text(data, fin)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    async def run_asgi(self) -> None:
        extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
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
        if not self.handshake_initiated:
            # The request itself, as uvicorn passes it on: it is not a frame.
            super().data_received(data)
            self._settle()
            return
        self._pieces.add(data)
        if self.turns.spent:
            self._settle()
        elif not self._due:
            self._hand_on()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.clear()
        self.turns.forget(self._owner, self)
        self._gone.set()
        super().connection_lost(exc)

    def go_on(self) -> None:
        """Handles the next frames when its turn has come."""
        self._due = False
        if self._pieces and self.writable.is_set() and not self.read_paused:
            self._hand_on()
        else:
            self._settle()

    def _hand_on(self) -> None:
        super().data_received(self._pieces.next())
        self.turns.handled(self._pieces.frames)
        self._settle()

    def _settle(self) -> None:
        """Pauses reading while answers or messages wait; the rest is handled in a later turn."""
        transport, takes, waits = self.transport, self.writable.is_set(), bool(self._pieces)
        if transport.is_closing():
            return
        if waits or not takes:
            self._held = True
            if transport.is_reading():
                transport.pause_reading()
            if waits and takes and not self.read_paused and not self._due:
                self._due = True
                self.turns.wait(self._owner, self)
        elif self._held and not self.read_paused:
            self._held = False
            if not transport.is_reading():
                transport.resume_reading()
