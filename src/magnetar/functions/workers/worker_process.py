"""One worker process: starts it, talks with it, tells how it ended. Driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Final

from magnetar.functions.instance.control import LineReader, Said
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.workers.forks import ForkedProcess, Forks
from magnetar.functions.workers.output_log import OutputLog
from magnetar.functions.workers.restarts import users_stack, why
from magnetar.runtime.tasks import TaskGroup, happens_within

_TOLD_BYTES: Final = 4_096
"""How much of what a process wrote last tells why it ended."""
ANSWER_S: Final = 0.5
"""Seconds that an instance may take to tell its figures; one in a call takes longer."""
_STACK_S: Final = 0.5
_PIECE_S: Final = 0.05
_STACK_BYTES: Final = 64 << 10
STOP_S: Final = 12.0
"""Seconds that an instance may take to finish what is under way."""


Results = dict[str, "asyncio.Future[bytes | None]"]
"""Triggers whose result is awaited, by id. All instances share them: any of them may get the message, also
one that starts later."""


class InstanceProcess:
    """The process of one instance. `start`, then `ended`, or `stop`."""

    def __init__(self, plan: InstancePlan, results: Results, output: OutputLog, forks: Forks) -> None:
        """`output`: takes what the process writes. `forks`: starts it."""
        self.plan = plan
        self._output = output
        self._forks = forks
        self.status: Said = {}
        """The figures that it told last."""
        self.is_running = False
        """Whether it has loaded the code, and has not been told to end."""
        self._results = results
        self.answered_s = 0.0
        """When it said last that it goes on, by the loop's clock."""
        self._told = ""
        self._answered = asyncio.Event()
        self._tasks = TaskGroup(f"function {plan.full_name}/{plan.instance}")
        self._process: ForkedProcess
        self._written: asyncio.StreamReader
        self._pipe: asyncio.ReadTransport
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._stacks: int

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def start(self) -> None:
        """Starts the process; it loads the code by itself."""
        mine, its = socket.socketpair()
        self._stacks, stacks = os.pipe()
        os.set_blocking(self._stacks, False)
        written, output = os.pipe()
        try:
            self._process = await self._forks.fork(its.fileno(), stacks, output)
        except BaseException:
            mine.close()
            os.close(self._stacks)
            os.close(written)
            raise
        finally:
            its.close()
            os.close(stacks)
            os.close(output)
        self._written, self._pipe = await _read_end(written)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=mine)
        self._writer.write(self.plan.encode().encode() + b"\n")
        self._tasks.spawn(self._listen())
        self._tasks.spawn(self._keep_output())

    async def _listen(self) -> None:
        lines = LineReader()
        # A killed process resets the connection; `ended` says what became of it.
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 16):
                for line in lines.lines(data):
                    self._take(json.loads(line))

    def _take(self, said: Said) -> None:
        kind = said.get("is")
        if kind == "running":
            self.is_running = True
            self.answered_s = asyncio.get_running_loop().time()
        elif kind == "status":
            self.status = said
            self.answered_s = asyncio.get_running_loop().time()
            self._answered.set()
        elif kind == "failed":
            self._told = str(said["text"])
        elif kind == "triggered":
            waiting = self._results.pop(str(said["id"]), None)
            if waiting is not None and not waiting.done():
                value = said["value"]
                waiting.set_result(None if value is None else _decoded(str(value)))

    async def _keep_output(self) -> None:
        while data := await self._written.read(1 << 16):
            self._output.add(data)

    def tell(self, what: Mapping[str, object]) -> None:
        """Says something to it."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(what).encode() + b"\n")

    async def ask(self) -> bool:
        """Asks for its figures, which are then in `status`; False when it does not answer, as in a long
        call."""
        self._answered.clear()
        self.tell({"do": "status"})
        return await happens_within(self._answered, ANSWER_S)

    async def stack(self) -> str:
        """Its Python stacks, also while the code never returns; empty when it cannot tell."""
        self._process.send_signal(signal.SIGUSR1)
        written = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._stacks, written.set)
        told = b""
        try:
            # It is written in pieces; the last one has come when none follows.
            while await happens_within(written, _PIECE_S if told else _STACK_S):
                written.clear()
                # Two wake-ups may stand for one piece.
                with contextlib.suppress(BlockingIOError):
                    told += os.read(self._stacks, _STACK_BYTES)
                if len(told) >= _STACK_BYTES:
                    break
        finally:
            loop.remove_reader(self._stacks)
        return users_stack(told.decode(errors="replace"))

    async def ended(self) -> str:
        """Waits for its end; why it ended."""
        code = await self._process.wait()
        await self._tasks.drain(1.0)
        return "" if code == 0 and not self._told else why(code, self._told, self._output.last(_TOLD_BYTES))

    async def stop(self) -> None:
        """Lets it finish what is under way, and ends it at last by force."""
        self.is_running = False
        self.tell({"do": "stop"})
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    async def close(self) -> None:
        """Frees what belongs to a process that has ended."""
        await self._tasks.close()
        self._writer.close()
        # Programs that the code has started may hold its other end.
        self._pipe.close()
        os.close(self._stacks)


async def _read_end(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader, transport


def _decoded(value: str) -> bytes:
    import base64

    return base64.b64decode(value)
