"""The metadata store of another process of this machine. Driver.

When the connection is lost, the session is: the other end deletes its ephemeral values. Another connection is
another session. Reads that were under way are repeated on it; a write is not, because it may have taken
effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from magnetar.base.errors import MetadataError, ProtocolError
from magnetar.metadata import paths
from magnetar.metadata.remote_store import RemoteStore
from magnetar.metadata.served.call_codec import (
    Ask,
    Call,
    ChildrenCall,
    DeleteBelowCall,
    DeleteCall,
    GetCall,
    PutCall,
    Result,
    StoreAnswer,
    Told,
    TransactCall,
    decode_from_server,
    encode_call,
    encode_here,
    frames,
)
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    Delete,
    Notification,
    Operation,
    OutcomeUnknownError,
    Put,
    SessionEvent,
    Stat,
    StoreClosedError,
    StoreUnreachableError,
    Value,
    check_count,
)
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.metadata")

CALL_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.1
"""Between two attempts to connect."""

_AWAY: Final = (
    "the storage process of this server, which has the metadata, is away; it is started again by itself: try"
    " again, and if this goes on, the server's log says why it ends"
)
_UNKNOWN: Final = (
    "the storage process of this server, which has the metadata, ended before it answered: whether the change"
    " was made is not known. It is started again by itself: look, or try again"
)


def _silent(waited_s: float) -> str:
    return (
        f"the storage process of this server, which has the metadata, did not answer in {waited_s:g} s: try"
        " again, and if this goes on, look whether its disk or its processor is overloaded"
    )


class LinkLostError(MetadataError):
    """The connection ended before the answer."""


class ServedMetadataStore(RemoteStore):
    """A `MetadataStore` at the place of a `MetadataServer`. Made by `open`."""

    def __init__(self, place: Path, call_timeout_s: float) -> None:
        """Use `open`."""
        super().__init__("served metadata")
        self._place = place
        self._call_timeout_s = call_timeout_s
        self._link: _Link | None = None
        self._linked = asyncio.Event()
        self._begun = 0
        """How many sessions have begun."""

    @classmethod
    async def open(cls, place: Path, *, call_timeout_s: float = CALL_TIMEOUT_S) -> ServedMetadataStore:
        """Returns when a session has begun. `call_timeout_s`: seconds that a call may take.

        Raises StoreUnreachableError.
        """
        store = cls(place, call_timeout_s)
        store._tasks.spawn(store._keep())
        try:
            await store._link_by(asyncio.get_running_loop().time() + call_timeout_s)
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, path: str) -> Value | None:
        paths.split(path)
        value = await self._call(GetCall(path), repeats=True)
        assert value is None or isinstance(value, Value), value
        return value

    async def children(self, path: str) -> list[str]:
        paths.check(path)
        names = await self._call(ChildrenCall(path), repeats=True)
        assert isinstance(names, tuple), names
        return [name for name in names if isinstance(name, str)]

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """See `MetadataStore.put`. After a cancellation a write may or may not have taken effect.

        Every write raises OutcomeUnknownError when the connection ends before its answer.
        """
        paths.split(path)
        call = PutCall(Put(path, data, expected_version), ephemeral, sequential)
        stat = await self._call(call, repeats=False)
        assert isinstance(stat, Stat), stat
        return stat

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        paths.split(path)
        call = DeleteCall(Delete(path, expected_version, expected_creation))
        await self._call(call, repeats=False)

    async def delete_recursive(self, path: str) -> None:
        paths.check(path)
        # Repeated, it would delete what another process has made there meanwhile.
        await self._call(DeleteBelowCall(path), repeats=False)

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_count(fixed := tuple(operations))
        for operation in fixed:
            paths.split(operation.path)
        if not fixed:
            self._check_open()
            return []
        stats = await self._call(TransactCall(fixed), repeats=False)
        assert isinstance(stats, tuple), stats
        assert not isinstance(stats, Stat), stats
        return [stat for stat in stats if not isinstance(stat, str)]

    async def sync(self) -> None:
        """Does nothing: the other end has the only writer, so every read sees the newest value."""
        self._check_open()

    async def _leave(self) -> None:
        if self._link is not None:
            self._link.end()
            await self._link.ended.wait()

    # -- calls ---------------------------------------------------------------------------------------

    async def _call(self, call: Call, *, repeats: bool) -> Result:
        """The result of a call. `repeats`: whether it may be made twice.

        Raises StoreClosedError, StoreUnreachableError, OutcomeUnknownError, what the store raises.
        """
        self._check_open()
        until_s = asyncio.get_running_loop().time() + self._call_timeout_s
        while True:
            link = await self._link_by(until_s)
            try:
                async with asyncio.timeout_at(until_s):
                    answered = await link.ask(call)
            except (LinkLostError, TimeoutError) as error:
                if self._closed:
                    raise StoreClosedError("the metadata store is closed") from error
                if not repeats:
                    raise OutcomeUnknownError(_UNKNOWN) from error
                if isinstance(error, TimeoutError):
                    # Asked again on the same connection, it would be asked without end.
                    raise StoreUnreachableError(_silent(self._call_timeout_s)) from error
                continue
            if isinstance(answered, MetadataError):
                raise answered
            return answered

    async def _link_by(self, until_s: float) -> _Link:
        """The connection, when there is one. Raises StoreUnreachableError."""
        try:
            async with asyncio.timeout_at(until_s):
                await self._linked.wait()
        except TimeoutError as error:
            raise StoreUnreachableError(_AWAY) from error
        assert self._link is not None, "it is linked"
        return self._link

    # -- the connection ------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Connects again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, link = await loop.create_unix_connection(
                    lambda: _Link(self._told, self._linked.clear), str(self._place)
                )
            except OSError:  # the loop is the retry, and calls say when their time is up
                await pause(_RETRY_S)
                continue
            self._link = link
            self._linked.set()
            self._begun += 1
            if self._begun > 1:
                # What watched must read again: it heard of no change since the last connection.
                self._sessions.announce(SessionEvent.SESSION_LOST)
                self._sessions.announce(SessionEvent.SESSION_RENEWED)
            await link.ended.wait()
            _log.warning("the process with the metadata is gone: waiting for its successor")
            self._sessions.announce(SessionEvent.CONNECTION_LOST)

    def _told(self, changes: Sequence[Notification]) -> None:
        self._watches.announce(changes)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, told: Callable[[Sequence[Notification]], None], lost: Callable[[], None]) -> None:
        """`lost` is called when it has ended, before its callers hear of it."""
        self._lost = lost
        self.ended = asyncio.Event()
        self._told = told
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._calls: dict[int, asyncio.Future[Result | MetadataError]] = {}
        """Calls without an answer; each has a caller that waits."""
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's has another class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        self._lost()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(LinkLostError("the connection was lost"))
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            for frame in frames(self._buffer):
                self._take(frame)
        except ProtocolError:
            _log.exception("the metadata store of another process cannot be understood")
            self.end()

    def _take(self, frame: bytes) -> None:
        match decode_from_server(frame):
            case StoreAnswer(number, result):
                future = self._calls.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(result)
            case Told(changes):
                self._told(changes)
            case Ask():
                self._transport.write(encode_here())

    async def ask(self, call: Call) -> Result | MetadataError:
        """The answer. Raises LinkLostError, FrameTooLongError."""
        if self.ended.is_set():
            raise LinkLostError("the connection was lost")
        self._number += 1
        number = self._number
        frame = encode_call(number, call)
        future: asyncio.Future[Result | MetadataError] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._transport.write(frame)
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    def end(self) -> None:
        """Ends the connection."""
        self._transport.close()
