"""A port that leads to another one and loses what tests want lost."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum
from types import TracebackType


class Loss(Enum):
    """What happens to the next bytes."""

    NOTHING = "nothing"
    REQUEST = "request"
    """What the client says next does not arrive, and the connection breaks."""
    ANSWER = "answer"
    """What the client says next arrives, the answer does not, and the connection breaks."""
    EVERYTHING = "everything"
    """Connections break, and new ones are closed at once."""


class Relay:
    """Runs on the test's event loop."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loss = Loss.NOTHING
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = asyncio.Event()
        """Something was lost since `lose`."""
        self.answers = asyncio.Event()
        """Whether answers pass; else they wait."""
        self.answers.set()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._break()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return host, port

    def lose(self, loss: Loss) -> None:
        """From now on; after one REQUEST or ANSWER nothing more is lost."""
        self.lost.clear()
        self._loss = loss
        if loss is Loss.EVERYTHING:
            self._break()

    def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(to_client)
        try:
            if self._loss is Loss.EVERYTHING:
                return
            server, to_server = await asyncio.open_connection(*self._target)
            self._writers.add(to_server)
            try:
                await asyncio.gather(
                    self._pass_on(client, to_server, to_client, Loss.REQUEST),
                    self._pass_on(server, to_client, to_server, Loss.ANSWER),
                )
            finally:
                self._writers.discard(to_server)
                to_server.transport.abort()
        except OSError:
            return
        finally:
            self._writers.discard(to_client)
            to_client.transport.abort()

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        losing: Loss,
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(1 << 16):
                if losing is Loss.ANSWER:
                    await self.answers.wait()
                if self._loss is losing:
                    self._loss = Loss.NOTHING
                    self.lost.set()
                    break
                target.write(piece)
        target.transport.abort()
        other.transport.abort()
