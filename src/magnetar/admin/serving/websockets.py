"""WebSockets on the admin port: the check of origins, and their place in uvicorn.

A browser lets every page open a WebSocket to every address. Without authentication, a page with another
origin than the address is refused, as for changes by HTTP. Pages of this machine are allowed while only this
machine can reach the port.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.admin.calls.call import Service
from magnetar.admin.calls.errors import RequestError, status_of
from magnetar.admin.calls.sources import check_socket
from magnetar.broker.service import Broker
from magnetar.broker.session.command_turns import CommandTurns
from magnetar.runtime.tasks import ended
from magnetar.websocket.sockets import sockets_of

if TYPE_CHECKING:
    from magnetar.websocket.app import WebSockets

TEXT_BESIDE_BYTES: Final = 1 << 20
"""Most bytes of a text besides its payload in base64."""
_GRACE_S: Final = 1.0
"""Seconds for sockets to end when the server stops."""
PING_S: Final = 30.0
"""Seconds between two pings to a client that answers."""
PONG_S: Final = 300.0
"""Seconds without a pong after which a client counts as dead; clients that work on a message answer late."""


class Gate:
    """Passes handshakes to the WebSockets if their origin is allowed."""

    def __init__(self, broker: Broker, service: Service) -> None:
        self._sockets: WebSockets | None = None
        self._broker = broker
        self._service = service
        # Now, so that `/metrics` knows them.
        sockets_of(broker)
        self._guarded = broker.guard is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Loaded once calls are served (`AdminServer.serving`), like the library below: a start does not wait.
        from magnetar.websocket.app import WebSockets, refuse

        if not self._broker.config.websocket_enabled:
            await receive()
            await refuse(send, 404, "WebSockets are switched off: set websocket_enabled to serve them")
            return
        if self._sockets is None:
            self._sockets = WebSockets(self._broker, STATE_CERTIFICATE_ROLE)
        try:
            check_socket(HTTPConnection(scope), self._service, guarded=self._guarded)
        except RequestError as error:
            await receive()
            await refuse(send, status_of(error), str(error))
            return
        await self._sockets(scope, receive, send)


class Upgrades:
    """Creates the protocol of connections whose client requests a WebSocket.

    They are counted separately: connections that stay open for hours must not take the places of calls.
    """

    def __init__(self, turns: CommandTurns) -> None:
        """`turns`: the turns of the broker's clients."""
        self.state = ServerState()
        self._turns = turns

    def __call__(
        self, config: Config, server_state: ServerState, app_state: dict[str, object]
    ) -> asyncio.Protocol:
        from magnetar.admin.serving.socket_protocol import SocketProtocol

        made = SocketProtocol(config=config, server_state=self.state, app_state=app_state)
        made.turns = self._turns
        return made

    async def shutdown(self) -> None:
        """Closes all WebSockets and waits for their end."""
        for connection in list(self.state.connections):
            connection.shutdown()
        await ended(*self.state.tasks, within_s=_GRACE_S)
        for task in list(self.state.tasks):
            task.cancel()
