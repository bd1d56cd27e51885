"""The port of Arrow Flight SQL: bound with the others, served once its libraries are loaded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.broker.service import Broker
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.entrance import Entrance
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.runtime.threads import in_thread

if TYPE_CHECKING:
    from magnetar.base.loop_shares import LoopShares
    from magnetar.flightsql.connection import FlightConnection
    from magnetar.flightsql.service import FlightService
    from magnetar.sql.serving.query_places import QueryPlaces

CONNECTIONS_MAX: Final = 128
"""Most connections. One more closes the connection that has been idle for longest."""
PER_ADDRESS_MAX: Final = 32
"""Most connections of an address; as many as the pool of a tool has."""
HANDSHAKE_S: Final = 10.0
"""Seconds for a TLS handshake."""
GRACE_S: Final = 1.0
"""Seconds for calls under way when the broker stops."""
LOOK_S: Final = 1.0
"""Seconds between two looks at the connections, while there are any."""
_TURN_MS: Final = 1.0
"""Time in a turn of the loop for what connections have brought."""


class FlightServer:
    """One port."""

    def __init__(
        self,
        broker: Broker,
        listener: socket.socket,
        queries: Callable[[], QueryPlaces],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`listener` listens already, and is its maker's; `queries` gives those of all ports of the broker,
        and loads them."""
        self.entrance: Final = Entrance("Flight SQL", CONNECTIONS_MAX, PER_ADDRESS_MAX)
        self._broker = broker
        self._listener = listener
        self._queries = queries
        self._tls = tls
        self._acceptor: Acceptor | None = None
        self._tasks = TaskGroup("Flight SQL")
        self._open: dict[FlightConnection, None] = {}
        """The connections, in the order of their opening."""
        self._stopped = False

    async def serve(self) -> None:
        """Loads the libraries; then connections that came meanwhile are served."""
        make = await in_thread(_import_stack)
        if self._stopped:
            return
        connections = make(self)
        self._acceptor = Acceptor(
            self._listener,
            self.entrance,
            connections,
            tls=self._tls,
            handshake_s=HANDSHAKE_S,
            make_room=self._drop_idle,
        )
        self._tasks.spawn(self._watch())

    def connection(
        self, made: type[FlightConnection], service: FlightService, turns: LoopShares
    ) -> FlightConnection:
        """One more connection."""
        connection = made(service, turns, self._tasks, lambda each: self._open.pop(each, None))
        self._open[connection] = None
        return connection

    def service(self, made: type[FlightService]) -> FlightService:
        """What answers the calls."""
        return made(self._broker, self._queries())

    async def stop(self) -> None:
        """Takes no more connections, and ends those that are open once their calls have ended, or after a
        second."""
        self._stopped = True
        if self._acceptor is not None:
            self._acceptor.close()
        with contextlib.suppress(TimeoutError):  # what is open then is ended below
            async with asyncio.timeout(GRACE_S):
                while self._open:
                    for connection in list(self._open):
                        if connection.is_idle:
                            connection.leave()
                    await pause(0.01)
        for connection in list(self._open):
            connection.abort()
        await self._tasks.close()

    async def _watch(self) -> None:
        while True:
            await pause(LOOK_S)
            now_s = asyncio.get_running_loop().time()
            for connection in list(self._open):
                connection.look(now_s)

    def _drop_idle(self, address: str) -> bool:
        for connection in self._open:
            if connection.is_idle and (not address or connection.address == address):
                del self._open[connection]
                connection.abort()
                return True
        return False


def _import_stack() -> Callable[[FlightServer], Callable[[], asyncio.BaseProtocol]]:
    from magnetar.base.loop_shares import LoopShares, ShareSizes
    from magnetar.flightsql.connection import FlightConnection
    from magnetar.flightsql.service import FlightService
    from magnetar.runtime.clock import SystemClock
    from magnetar.runtime.tasks import soon

    def serving(server: FlightServer) -> Callable[[], asyncio.BaseProtocol]:
        service = server.service(FlightService)
        turns = LoopShares(
            soon, SystemClock().monotonic_ms, ShareSizes(per_read=1, per_turn=1, turn_ms=_TURN_MS)
        )
        return lambda: server.connection(FlightConnection, service, turns)

    return serving
