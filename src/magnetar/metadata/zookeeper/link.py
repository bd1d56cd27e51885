"""Keeps one session with ZooKeeper over successive connections to its servers.

Theory of operation. One task connects to one server after the other, and holds a connection until it breaks.
Pings keep the session alive; a connection on which the server sends nothing for two thirds of the session's
time is closed. Requests are sent in the order of the calls. When a connection breaks, requests on it fail
with `LostInFlightError`: they may or may not have taken effect, which the caller finds out (`writes.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from magnetar.base.errors import MetadataError, ProtocolError
from magnetar.metadata.store import SessionEvent, StoreClosedError, StoreUnreachableError
from magnetar.metadata.zookeeper.protocol import Code, Event, Opcode, pack_add_watch
from magnetar.metadata.zookeeper.session import Expired, Joined, Reply, ZooKeeperSession
from magnetar.runtime.tasks import TaskGroup, pause

_log = logging.getLogger("magnetar.metadata")

RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
"""Longest pause between two attempts to connect, in seconds. Pauses double; a random share of up to as much
is added."""

Address = tuple[str, int]


class LostInFlightError(MetadataError):
    """The connection broke before a request was answered."""


class ZooKeeperLink:
    """Sends requests of one session over the present connection. Made on the event loop."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        session_timeout_ms: int,
        call_timeout_s: float,
        on_event: Callable[[Event], None],
        on_session: Callable[[SessionEvent], None],
    ) -> None:
        """`call_timeout_s`: seconds that a call waits for a connection."""
        self._addresses = random.sample(addresses, len(addresses))
        self._call_timeout_s = call_timeout_s
        self._on_event = on_event
        self._on_session = on_session
        self._session = ZooKeeperSession(session_timeout_ms)
        self._transport: asyncio.Transport | None = None
        self._joined = asyncio.Event()
        self._answers: deque[asyncio.Future[Reply]] = deque()
        self._watched: dict[str, int] = {}
        self._ever_joined = False
        self._served = False
        """Whether the present or last connection has joined the session."""
        self._closed = False
        self._tasks = TaskGroup("zookeeper")
        self._tasks.spawn(self._stay_connected())

    @property
    def session_id(self) -> int:
        """The session's id; 0 when there is none."""
        return self._session.session_id

    async def call(self, opcode: Opcode, record: bytes) -> Reply:
        """Sends a request and returns the answer, which may be an error.

        Raises StoreUnreachableError when there was no connection in time (nothing was sent),
        LostInFlightError when the connection broke before the answer, StoreClosedError.
        """
        if not self._joined.is_set():
            await self.connected()
        return await self._send(opcode, record)

    async def connected(self) -> None:
        """Waits for a connection. Raises StoreUnreachableError, StoreClosedError."""
        try:
            async with asyncio.timeout(self._call_timeout_s):
                await self._joined.wait()
        except TimeoutError:
            hosts = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            raise StoreUnreachableError(
                f"ZooKeeper at {hosts} cannot be reached since {self._call_timeout_s:g} s"
            ) from None
        if self._closed:
            raise StoreClosedError("the metadata store is closed")

    def watch(self, path: str) -> None:
        """Asks for events of `path` and below, on this connection and those that follow."""
        self._watched[path] = self._watched.get(path, 0) + 1
        if self._watched[path] == 1 and self._joined.is_set():
            self._forget(self._send(Opcode.ADD_WATCH, pack_add_watch(path)))

    def unwatch(self, path: str) -> None:
        """Undoes one `watch`. Events may come until the connection ends."""
        self._watched[path] -= 1
        if not self._watched[path]:
            del self._watched[path]

    async def close(self) -> None:
        """Ends the connection; ends the session too if a server is connected."""
        if self._joined.is_set() and not self._closed:
            # A session that is not closed expires.
            with contextlib.suppress(MetadataError, TimeoutError):
                async with asyncio.timeout(self._call_timeout_s):
                    await self._send(Opcode.CLOSE, b"")
        self._closed = True
        self._joined.set()
        await self._tasks.close()
        self._drop()

    # -- one connection ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A server has accepted the connection."""
        self._transport = transport
        transport.write(self._session.connect())

    def data_received(self, data: bytes) -> None:
        """Handles bytes from the server. Invalid ones end the connection and have no other effect."""
        try:
            for output in self._session.receive(data):
                match output:
                    case Reply():
                        self._answered(output)
                    case Event():
                        self._on_event(output)
                    case Joined(resumed):
                        self._has_joined(resumed=resumed)
                    case Expired():
                        self._drop()
                        self._on_session(SessionEvent.SESSION_LOST)
                        return
        except ProtocolError:
            _log.exception("the ZooKeeper server sent invalid bytes")
            self._drop()

    def connection_lost(self) -> None:
        """The connection is over."""
        self._transport = None
        if self._closed:
            return
        was_joined = self._joined.is_set()
        self._joined.clear()
        self._fail_all()
        if was_joined:
            self._on_session(SessionEvent.CONNECTION_LOST)

    def _fail_all(self) -> None:
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if not answer.done():
                answer.set_exception(LostInFlightError("the connection to ZooKeeper broke"))

    def _answered(self, reply: Reply) -> None:
        answer = self._answers.popleft()
        if reply.error in (Code.SESSION_MOVED, Code.SESSION_EXPIRED):
            # The server refuses all further requests: the next connection starts with a new session.
            self._answers.appendleft(answer)
            self._drop()
        elif not answer.done():
            answer.set_result(reply)

    def _has_joined(self, *, resumed: bool) -> None:
        # The server keeps watches by connection. They are sent first, so that no change is missed between
        # the reads that follow and the watch.
        for path in self._watched:
            self._forget(self._send(Opcode.ADD_WATCH, pack_add_watch(path)))
        first, self._ever_joined = not self._ever_joined, True
        self._served = True
        self._joined.set()
        if not first:
            self._on_session(SessionEvent.RECONNECTED if resumed else SessionEvent.SESSION_RENEWED)

    def _send(self, opcode: Opcode, record: bytes) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._closed:
            answer.set_exception(StoreClosedError("the metadata store is closed"))
            return answer
        self._answers.append(answer)
        self._transport.write(self._session.request(opcode, record))
        return answer

    @staticmethod
    def _forget(answer: asyncio.Future[Reply]) -> None:
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- connecting ----------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        pause_s = RETRY_FIRST_S
        at = 0
        while True:
            host, port = self._addresses[at % len(self._addresses)]
            at += 1
            joined = False
            try:
                joined = await self._one_connection(host, port)
            except OSError as error:  # the next address is tried, after a pause that grows
                _log.debug("ZooKeeper at %s:%d: %s", host, port, error)
            pause_s = RETRY_FIRST_S if joined else min(pause_s * 2, RETRY_MAX_S)
            await pause(pause_s * (1 + random.random()))

    async def _one_connection(self, host: str, port: int) -> bool:
        """Holds one connection until it ends; returns whether it served the session."""
        loop = asyncio.get_running_loop()
        attempt_s = self._session.timeout_ms / 1000 / 3
        try:
            async with asyncio.timeout(attempt_s):
                _, wire = await loop.create_connection(lambda: _Wire(self), host, port)
        except TimeoutError as error:
            raise OSError(f"no connection within {attempt_s:g} s") from error
        try:
            self._served = False
            while not wire.ended.is_set():
                timeout_s = self._session.timeout_ms / 1000
                with contextlib.suppress(TimeoutError):  # time to ask whether the server is alive, below
                    async with asyncio.timeout(timeout_s / 3):
                        await wire.ended.wait()
                if loop.time() - wire.heard > timeout_s * 2 / 3:
                    self._drop()
                elif self._joined.is_set() and self._transport is not None:
                    self._transport.write(self._session.ping())
            return self._served
        finally:
            self._drop()


class _Wire(asyncio.Protocol):
    """Passes the events of one connection to the link."""

    def __init__(self, link: ZooKeeperLink) -> None:
        self._link = link
        self.ended = asyncio.Event()
        self.heard = asyncio.get_running_loop().time()
        """When the server last sent bytes, in seconds of the loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._link.connection_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self.heard = asyncio.get_running_loop().time()
        self._link.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()
        self._link.connection_lost()
