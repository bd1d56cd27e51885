"""What producers, consumers and readers have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.websocket.errors import (
    GOING_AWAY,
    TRY_AGAIN_LATER,
    Fault,
    LineClosedError,
    RefusedByBrokerError,
)
from magnetar.websocket.line import Line
from magnetar.websocket.memory import HeldBytes
from magnetar.websocket.paths import Target
from magnetar.websocket.share import Share
from magnetar.wire.client import ClientEvent

_COME_BACK_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Between attempts to come back after the broker sent a producer or consumer away; the last one goes on."""


class Output(Protocol):
    """The WebSocket, as endpoints write to it."""

    async def text(self, text: str) -> None:
        """Returns when the client's side takes more. Raises OSError when it is gone."""


class SocketEnd(Exception):  # noqa: N818  # no error: how an endpoint ends
    """The endpoint is through; the socket is closed with this."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Endpoint(ABC):
    """One open socket: what its client says goes into `take`, what it gets comes out of `write`."""

    def __init__(self, broker: Broker, target: Target, peer: str, memory: HeldBytes) -> None:
        self.broker = broker
        self.memory = memory
        self.target = target
        self.peer = peer
        self.messages = 0
        """Published or delivered."""
        self.line: Line
        """Given by `connect`'s caller before anything else happens."""
        self.share: Share
        """Given when the broker knows who it is."""
        self._wake = asyncio.Event()
        self._end: SocketEnd | None = None
        self._overdue = asyncio.Event()
        self._answers: deque[str] = deque()
        self._tasks = TaskGroup("websocket")

    # -- to be given -------------------------------------------------------------------------------

    @abstractmethod
    async def open(self) -> None:
        """Raises OpeningError."""

    @abstractmethod
    async def take(self, text: str) -> None:
        """One text of the client. Raises MessageError when the socket must be closed for it."""

    @abstractmethod
    async def write(self, output: Output) -> None:
        """Writes until the endpoint ends; raises SocketEnd then, and OSError when the client is gone."""

    @abstractmethod
    def hear(self, event: ClientEvent) -> None:
        """What the broker says that answers no request."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """For operators, as Pulsar's proxy tells it."""

    # -- ends --------------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        """The broker closed the connection."""
        self.finish(SocketEnd(GOING_AWAY if self.broker.draining else Fault.UNKNOWN.close_code, reason))

    def finish(self, end: SocketEnd) -> None:
        """What is written next is the end."""
        if self._end is None:
            self._end = end
        self._wake.set()

    @property
    def tenant(self) -> str:
        """Whose topics it is about."""
        return self.target.topics[0].tenant

    def give_way(self, reason: str) -> None:
        """It ends now, whether its client reads or not."""
        self.finish(SocketEnd(TRY_AGAIN_LATER, reason))
        self._overdue.set()

    async def overdue(self) -> None:
        """Ends with SocketEnd when the socket has to give way."""
        await self._overdue.wait()
        assert self._end is not None
        raise self._end

    async def close(self) -> None:
        """The socket is gone."""
        self.broker.alarms.discard(self)
        await self._tasks.close()
        self.line.end()
        # Behind everything that counts.
        self.memory.forget(self)

    # -- for those below ---------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """An answer to the client, to be written as soon as it can be."""
        self._answers.append(text)
        self._wake.set()

    async def _until_woken(self) -> None:
        """Waits until there may be something to write. Raises SocketEnd."""
        if self._end is not None:
            raise self._end
        await self._wake.wait()
        self._wake.clear()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beside the socket, and ends with it; when it fails, so does the socket."""
        self._tasks.spawn(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MagnetarError as error:
            self.finish(SocketEnd(Fault.UNKNOWN.close_code, str(error)))

    def come_back(self, opening: Callable[[], Awaitable[None]]) -> None:
        """Opens again what the broker took off, for as long as that may succeed."""
        self.spawn(self._coming_back(opening))

    async def _coming_back(self, opening: Callable[[], Awaitable[None]]) -> None:
        for attempt in range(1 << 30):
            try:
                await opening()
                return
            except RefusedByBrokerError as error:
                if not error.passing:
                    self.finish(SocketEnd(error.fault.close_code, f"{error.fault.text}: {error}"))
                    return
            except LineClosedError as error:
                # The line may still be there, and only an answer missing: the socket must not wait for ever.
                self.finish(SocketEnd(Fault.UNKNOWN.close_code, f"{Fault.UNKNOWN.text}: {error}"))
                return
            await pause(_COME_BACK_S[min(attempt, len(_COME_BACK_S) - 1)])
