"""Calls between the processes of this machine, over a UNIX socket that only this user can reach. Driver.

    caller     JSON LF     {"call": NAME, …}: what is called, and texts by name
    called     JSON LF     {"answer": …}, or {"error": TEXT}; then the connection ends

There is a connection for each call. Nothing is repeated: a caller whose answer is lost does not know whether
the call took effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from magnetar.base.errors import MagnetarError, StorageError
from magnetar.runtime.tasks import TaskGroup

_log = logging.getLogger("magnetar.runtime")

CALL_BYTES_MAX: Final = 64 << 10
"""Bytes of the longest call."""
ANSWER_BYTES_MAX: Final = 256 << 20
"""Bytes of the longest answer: the metrics of a process with the most series that a scrape may have."""
CALLS_MAX: Final = 32
"""Calls under way; more connections are closed. Each process of this machine makes a few at a time."""
_SAY_S: Final = 10.0
"""Seconds in which a caller says what it wants, and takes the answer."""

Answering: TypeAlias = Callable[[Mapping[str, str]], Awaitable[object]]
"""Carries out a call; what it returns is sent as JSON. It may raise MagnetarError, whose text is sent."""


class CallFailedError(StorageError):
    """The other process is not there, did not answer in time, or could not do it."""


class CallServer:
    """Answers the calls of other processes."""

    def __init__(self, calls: Mapping[str, Answering]) -> None:
        """`calls`: what can be called, by name."""
        self._calls = calls
        self._tasks = TaskGroup("calls of other processes")
        self._under_way = 0
        self._server: asyncio.Server | None = None

    async def start(self, place: Path) -> None:
        """Begins to answer; what is at `place` is replaced. Raises OSError."""
        bound = _bound(place)
        try:
            self._server = await asyncio.start_unix_server(self._came, sock=bound, limit=CALL_BYTES_MAX)
        except BaseException:
            bound.close()
            raise

    async def close(self) -> None:
        """Answers nothing more; calls under way are cancelled."""
        if self._server is not None:
            self._server.close()
        await self._tasks.close()

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._under_way >= CALLS_MAX:
            writer.transport.abort()
            return
        self._under_way += 1
        self._tasks.spawn(self._attend(reader, writer))

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SAY_S):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
            async with asyncio.timeout(_SAY_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, ValueError) as error:
            # A caller that has gone, or says nothing of use, gets no answer.
            _log.debug("a call of another process was broken off: %s", error)
        finally:
            self._under_way -= 1
            await _ended(writer)

    async def _answer(self, line: bytes) -> dict[str, object]:
        """Raises ValueError when the line is not a call."""
        said: object = json.loads(line)
        if not isinstance(said, dict) or not all(isinstance(each, str) for each in said.values()):
            raise ValueError("no call")
        name = said.pop("call", "")
        if (answering := self._calls.get(name)) is None:
            return {"error": f"this process does not answer {name!r}"}
        try:
            return {"answer": await answering(said)}
        except MagnetarError as error:
            return {"error": str(error)}


def _bound(place: Path) -> socket.socket:
    place.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(place))
        place.chmod(0o600)
    except BaseException:
        bound.close()
        raise
    return bound


async def _ended(writer: asyncio.StreamWriter) -> None:
    """Ends a connection at once; on return its socket is closed."""
    writer.transport.abort()
    with contextlib.suppress(OSError):  # how it ended does not matter any more
        await writer.wait_closed()


async def call(place: Path, name: str, *, within_s: float, **said: str) -> object:
    """The answer of the process at `place`. Raises CallFailedError."""
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_unix_connection(str(place), limit=ANSWER_BYTES_MAX)
            try:
                writer.write(json.dumps({"call": name, **said}).encode() + b"\n")
                line = await reader.readline()
            finally:
                await _ended(writer)
    except TimeoutError as error:
        raise CallFailedError(f"another process of this server did not answer in {within_s:g} s") from error
    except (OSError, ValueError) as error:
        raise CallFailedError(f"another process of this server does not answer just now: {error}") from error
    if not line.endswith(b"\n"):
        raise CallFailedError("another process of this server has ended before it answered: try again")
    answered: dict[str, object] = json.loads(line)
    if "error" in answered:
        raise CallFailedError(str(answered["error"]))
    return answered["answer"]
