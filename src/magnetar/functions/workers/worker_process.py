"""One worker process: starts it, talks with it, tells how it ended. Driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from typing import Final

from magnetar.functions.instance.control import LineReader, Said
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.workers.restarts import users_stack, why
from magnetar.runtime.tasks import TaskGroup, happens_within

PROGRAM: Final = "magnetar.functions.workers.instance_program"
_STDERR_BYTES: Final = 64 << 10
"""How much of what a process writes is kept."""
ANSWER_S: Final = 0.5
"""Seconds that an instance may take to tell its figures; one in a call takes longer."""
_STACK_S: Final = 0.5
_PIECE_S: Final = 0.05
_STACK_BYTES: Final = 64 << 10
STOP_S: Final = 12.0
"""Seconds that an instance may take to finish what is under way."""
_ENVIRONMENT: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "PYTHONPATH",
    "HOME",
    "TMPDIR",
    "VIRTUAL_ENV",
    "MAGNETAR_PURE",
)
"""Variables that a function's process gets; credentials of the server are not among them."""


Results = dict[str, "asyncio.Future[bytes | None]"]
"""Triggers whose result is awaited, by id. All instances share them: any of them may get the message, also
one that starts later."""


class InstanceProcess:
    """The process of one instance. `start`, then `ended`, or `stop`."""

    def __init__(self, plan: InstancePlan, results: Results) -> None:
        self.plan = plan
        self.status: Said = {}
        """The figures that it told last."""
        self.is_running = False
        """Whether it has loaded the code, and has not been told to end."""
        self._results = results
        self.answered_s = 0.0
        """When it said last that it goes on, by the loop's clock."""
        self._told = ""
        self._stderr = b""
        self._answered = asyncio.Event()
        self._tasks = TaskGroup(f"function {plan.full_name}/{plan.instance}")
        self._process: Process
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
        try:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            self._process = await asyncio.create_subprocess_exec(
                # -P: modules of the server's folder are not imported.
                *(sys.executable, "-P", "-m", PROGRAM, str(its.fileno()), str(stacks)),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                pass_fds=(its.fileno(), stacks),
                # Ctrl-C in a terminal is for the server, which stops all in order.
                start_new_session=True,
            )
        finally:
            its.close()
            os.close(stacks)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=mine)
        self._writer.write(self.plan.encode().encode() + b"\n")
        self._tasks.spawn(self._listen())
        self._tasks.spawn(self._keep_stderr())

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

    async def _keep_stderr(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        while data := await self._process.stdout.read(1 << 16):
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]

    @property
    def output(self) -> str:
        """The last that it wrote."""
        return self._stderr.decode(errors="replace")

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
        # A process that has just ended has none.
        with contextlib.suppress(ProcessLookupError):
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
        return "" if code == 0 and not self._told else why(code, self._told, self.output[-4096:])

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
        # It has ended by itself meanwhile.
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Frees what belongs to a process that has ended."""
        await self._tasks.close()
        self._writer.close()
        os.close(self._stacks)


def _decoded(value: str) -> bytes:
    import base64

    return base64.b64decode(value)
