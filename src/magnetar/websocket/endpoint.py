"""The base class of producers, consumers and readers on WebSockets."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.websocket.asking_line import AskingLine
from magnetar.websocket.errors import (
    GOING_AWAY,
    TRY_AGAIN_LATER,
    Fault,
    LineClosedError,
    RefusedByBrokerError,
)
from magnetar.websocket.lines import SocketLines
from magnetar.websocket.memory import HeldBytes
from magnetar.websocket.paths import Target
from magnetar.websocket.share import Share
from magnetar.wire.client import ClientEvent

_COME_BACK_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reopen a producer or consumer that the broker has closed; the last value
repeats."""


class Output(Protocol):
    """The WebSocket's output for endpoints."""

    async def text(self, text: str) -> None:
        """Sends a text; returns when the client can take more. Raises OSError when it has disconnected."""

    async def pieces(self, pieces: Iterable[str]) -> None:
        """Sends a text whose pieces are made when the client can take them, each in a turn of its own."""


class SocketEnd(Exception):  # noqa: N818  # no error: how an endpoint ends
    """The endpoint has ended; the socket is closed with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Endpoint(ABC):
    """One open socket: `take` handles the texts of its client, `write` sends those for it."""

    def __init__(self, broker: Broker, target: Target, peer: str, memory: HeldBytes) -> None:
        self.broker = broker
        self.memory = memory
        self.target = target
        self.peer = peer
        self.messages = 0
        """Number of messages published or delivered."""
        self.lines: SocketLines
        """Set by the caller of `connect` before any other call."""
        self.share: Share
        """Set when the broker has authenticated the client."""
        self._wake = asyncio.Event()
        self._end: SocketEnd | None = None
        self._overdue = asyncio.Event()
        self._answers: deque[str] = deque()
        self._tasks = TaskGroup("websocket")

    # -- to be given -------------------------------------------------------------------------------

    @abstractmethod
    async def open(self) -> None:
        """Opens producers or consumers at the broker. Raises OpeningError."""

    @abstractmethod
    async def take(self, text: str) -> None:
        """Handles one text of the client. Raises MessageError when the socket must be closed."""

    @abstractmethod
    async def write(self, output: Output) -> None:
        """Writes until the endpoint ends. Raises SocketEnd then, and OSError when the client has
        disconnected."""

    @abstractmethod
    def hear(self, event: ClientEvent) -> None:
        """Handles an event of the broker that does not answer a request."""

    @abstractmethod
    def lost(self, line: AskingLine) -> None:
        """Another broker has ended this connection: what was open there is opened anew."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Statistics for operators, in the form of Pulsar's proxy."""

    # -- ends --------------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        """Notes that the broker closed the connection."""
        self.finish(SocketEnd(GOING_AWAY if self.broker.draining else Fault.UNKNOWN.close_code, reason))

    def finish(self, end: SocketEnd) -> None:
        """Makes `write` raise this end next."""
        if self._end is None:
            self._end = end
        self._wake.set()

    @property
    def tenant(self) -> str:
        """Tenant of the socket's topics."""
        return self.target.topics[0].tenant

    def give_way(self, reason: str) -> None:
        """Ends the socket now, even when its client does not read."""
        self.finish(SocketEnd(TRY_AGAIN_LATER, reason))
        self._overdue.set()

    async def overdue(self) -> None:
        """Waits until the socket must give way; raises SocketEnd then."""
        await self._overdue.wait()
        assert self._end is not None
        raise self._end

    async def close(self) -> None:
        """Releases all resources after the socket was closed."""
        self.broker.alarms.discard(self)
        await self._tasks.close()
        self.lines.end()
        # Behind everything that counts.
        self.memory.forget(self)

    # -- for those below ---------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """Queues an answer to the client."""
        self._answers.append(text)
        self._wake.set()

    async def _until_woken(self) -> None:
        """Waits until `write` may have texts. Raises SocketEnd."""
        if self._end is not None:
            raise self._end
        await self._wake.wait()
        self._wake.clear()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Runs work in the background until the socket ends; an error of the work ends the socket."""
        self._tasks.spawn(self._watched(work))

    async def _watched(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except MagnetarError as error:
            self.finish(SocketEnd(Fault.UNKNOWN.close_code, str(error)))

    def come_back(self, opening: Callable[[], Awaitable[None]]) -> None:
        """Reopens a producer or consumer that the broker has closed, until it succeeds or cannot succeed."""
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
                # The line may be open and only the answer missing: the socket must not wait for ever.
                self.finish(SocketEnd(Fault.UNKNOWN.close_code, f"{Fault.UNKNOWN.text}: {error}"))
                return
            await pause(_COME_BACK_S[min(attempt, len(_COME_BACK_S) - 1)])
