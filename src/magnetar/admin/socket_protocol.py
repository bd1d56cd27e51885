"""uvicorn's WebSocket, put right in one place. Importing this module loads the library for WebSockets."""

from __future__ import annotations

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # The handshake is over, with an answer; uvicorn would complain that there was none.
            self.handshake_complete = True
