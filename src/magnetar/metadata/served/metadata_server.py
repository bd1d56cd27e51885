"""The end of a served metadata store that has the store. Driver.

Every connection is a session. The store itself knows one session only, so which connection made an ephemeral
value is noted here, and such values are deleted when their connection has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import Final, cast

from magnetar.base.errors import MagnetarError, MetadataError, ProtocolError, StartupError
from magnetar.metadata.served.call_codec import (
    Call,
    ChildrenCall,
    DeleteBelowCall,
    DeleteCall,
    GetCall,
    PutCall,
    Result,
    StoreCall,
    TransactCall,
    decode_from_client,
    encode_answer,
    encode_ask,
    encode_told,
    frames,
)
from magnetar.metadata.store import (
    BadVersionError,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Notification,
    Stat,
    StoreClosedError,
    Value,
)
from magnetar.runtime.tasks import TaskGroup

_log = logging.getLogger("magnetar.metadata")

ASK_S: Final = 2.0
"""Between two questions whether a client is there."""
SILENT_S: Final = 10.0
"""A connection that has said nothing for so long is ended, and its session with it."""
CALLS_MAX: Final = 64
"""Calls of a connection that are under way; it is not read while there are more."""
ANSWERS_BYTES_MAX: Final = 1 << 20
"""Bytes that wait for a client, with which no further read of it is answered until it has taken some."""
OUT_BYTES_MAX: Final = 16 << 20
"""Bytes that wait for a client when a change is to be told; with more its connection is ended."""


class MetadataServer:
    """Serves a store to the processes that can reach a place in the file system."""

    def __init__(self, store: MetadataStore, *, silent_s: float = SILENT_S) -> None:
        """`silent_s`: see SILENT_S."""
        self.store = store
        self.makers: dict[str, tuple[ServedSession, int]] = {}
        """The session that made an ephemeral value, and the value's `Stat.creation`, by path."""
        self.answered = 0
        """Calls that were answered."""
        self.tasks = TaskGroup("metadata server")
        self._questions_max = max(1, round(silent_s / ASK_S))
        self._sessions: set[ServedSession] = set()
        self._server: asyncio.Server | None = None
        self._cancel = store.watch("/", self._changed)

    async def start(self, place: Path) -> None:
        """Begins to serve; what is at `place` is replaced. Raises StartupError."""
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX)
        try:
            _bind(listener, place)
            self._server = await loop.create_unix_server(lambda: ServedSession(self), sock=listener)
        except OSError as error:
            raise StartupError(
                f"metadata cannot be served at {place}: {error.strerror or error};"
                " give another folder for temporary files with TMPDIR"
            ) from error
        self.tasks.every(ASK_S, self._ask)

    @property
    def sessions(self) -> int:
        """How many there are."""
        return len(self._sessions)

    def began(self, session: ServedSession) -> None:
        """A connection was made."""
        self._sessions.add(session)

    def ended(self, session: ServedSession) -> None:
        """A connection has ended."""
        self._sessions.discard(session)
        self.tasks.spawn(self._forget(session))

    async def close(self) -> None:
        """Ends all sessions. The store stays open."""
        if self._server is not None:
            self._server.close()
        self._cancel()
        ended = list(self._sessions)
        for session in ended:
            session.end()
        for session in ended:
            await self._forget(session)
        await self.tasks.close()

    async def _forget(self, session: ServedSession) -> None:
        """Deletes the ephemeral values of a session that has ended, when its calls have."""
        await session.idle.wait()
        for path, (maker, creation) in list(self.makers.items()):
            if maker is not session:
                continue
            # Others may have deleted it meanwhile, and made another one.
            with contextlib.suppress(NotFoundError, BadVersionError, HasChildrenError, StoreClosedError):
                await self.store.delete(path, expected_creation=creation)
            if self.makers.get(path) == (maker, creation):
                del self.makers[path]

    def _changed(self, notification: Notification) -> None:
        for session in self._sessions:
            session.tell(notification)

    async def _ask(self) -> None:
        # Questions are counted, not seconds: when this process was paused, clients were not silent.
        for session in list(self._sessions):
            if session.unanswered >= self._questions_max and not session.is_held:
                _log.warning("a process says nothing: its session with the metadata has ended")
                session.end()
            else:
                session.ask()


def _bind(listener: socket.socket, place: Path) -> None:
    place.unlink(missing_ok=True)
    listener.bind(str(place))
    place.chmod(0o600)


class ServedSession(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: MetadataServer) -> None:
        self.idle = asyncio.Event()
        """Set while no call is under way."""
        self.idle.set()
        self.unanswered = 0
        """Questions since it said something."""
        self._has_room = asyncio.Event()
        """Cleared while ANSWERS_BYTES_MAX wait for the client."""
        self._has_room.set()
        self._server = server
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._calls = 0
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's has another class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ANSWERS_BYTES_MAX)
        self._is_open = True
        self._server.began(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._has_room.set()
        self._server.ended(self)

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    @property
    def is_held(self) -> bool:
        """Whether it is not read because the store is slow, so that it cannot be heard."""
        return self._calls >= CALLS_MAX and self._has_room.is_set()

    def data_received(self, data: bytes) -> None:
        self.unanswered = 0
        self._buffer += data
        self._begin_calls()

    def _begin_calls(self) -> None:
        """Begins what was read, up to CALLS_MAX."""
        try:
            while self._calls < CALLS_MAX and (frame := next(frames(self._buffer), None)) is not None:
                said = decode_from_client(frame)
                if isinstance(said, StoreCall):
                    self._begin(said)
        except ProtocolError as error:
            _log.error("a process spoke no calls of the metadata store: %s", error)
            self.end()

    def tell(self, notification: Notification) -> None:
        """Sends a note of a change."""
        if self._is_open and self._transport.get_write_buffer_size() > OUT_BYTES_MAX:
            _log.warning("a process does not read what the metadata store tells it: its session has ended")
            self.end()
        self._write(encode_told((notification,)))

    def ask(self) -> None:
        """Asks whether it is there."""
        self.unanswered += 1
        self._write(encode_ask())

    def end(self) -> None:
        """Ends the connection, whether the client reads or not."""
        if self._is_open:
            self._is_open = False
            self._transport.abort()

    def _begin(self, asked: StoreCall) -> None:
        self._calls += 1
        self.idle.clear()
        if self._calls == CALLS_MAX:
            self._transport.pause_reading()
        self._server.tasks.spawn(self._attend(asked))

    async def _attend(self, asked: StoreCall) -> None:
        result: Result | MagnetarError
        try:
            if isinstance(asked.call, GetCall | ChildrenCall):
                # One at a time finds room: a read does not wait between its result and the answer.
                while not self._has_room.is_set():
                    await self._has_room.wait()
            result = await self._done(asked.call)
        except MagnetarError as error:
            result = error
        except Exception as error:  # noqa: BLE001  # its caller waits for an answer
            _log.exception("a call of the metadata store failed")
            result = MetadataError(f"the metadata store failed: {error!r}")
        finally:
            self._calls -= 1
            if not self._calls:
                self.idle.set()
        self._server.answered += 1
        self._write(encode_answer(asked.number, result))
        if self._calls == CALLS_MAX - 1 and self._is_open:
            self._begin_calls()
            if self._calls < CALLS_MAX and self._is_open:
                self._transport.resume_reading()

    async def _done(self, call: Call) -> Result:
        store = self._server.store
        match call:
            case GetCall(path):
                value = await store.get(path)
                return None if value is None else Value(value.data, self._seen(value.stat))
            case ChildrenCall(path):
                return tuple(await store.children(path))
            case DeleteCall(delete):
                await store.delete(
                    delete.path,
                    expected_version=delete.expected_version,
                    expected_creation=delete.expected_creation,
                )
                return None
            case DeleteBelowCall(path):
                await store.delete_recursive(path)
                return None
            case TransactCall(operations):
                stats = await store.transact(operations)
                return tuple(None if stat is None else self._seen(stat) for stat in stats)
            case PutCall():
                return await self._put(call)

    async def _put(self, call: PutCall) -> Stat:
        put = call.put
        stat = await self._server.store.put(
            put.path,
            put.data,
            expected_version=put.expected_version,
            ephemeral=call.ephemeral,
            sequential=call.sequential,
        )
        if call.ephemeral:
            self._server.makers[stat.path] = self, stat.creation
        return self._seen(stat)

    def _seen(self, stat: Stat) -> Stat:
        """The Stat as this session sees it: to the store, all values are of its own session."""
        made = self._server.makers.get(stat.path) == (self, stat.creation)
        return stat._replace(created_by_self=stat.ephemeral and made)

    def _write(self, frame: bytes) -> None:
        if self._is_open:
            self._transport.write(frame)
