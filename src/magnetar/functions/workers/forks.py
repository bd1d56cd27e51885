"""The worker's end of the process of which instances are copies. Driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from typing import Final

PROGRAM: Final = "magnetar.functions.workers.fork_server"
_PACKET_BYTES: Final = 4_096
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
"""Variables that functions get; credentials of the server are not among them."""


class ForkedProcess:
    """One copy."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = asyncio.Event()
        self._code = 0

    def end(self, code: int) -> None:
        """It has ended."""
        self._code = code
        self._ended.set()

    async def wait(self) -> int:
        """Its exit code once it has ended; of one that a signal ended the negative number of that."""
        await self._ended.wait()
        return self._code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if not self._ended.is_set():
            # It has ended, and this is told in a moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts instances as copies of a process that is started with the first one, and again when it was
    lost. `close` in the end."""

    def __init__(self) -> None:
        self._server: Process | None = None
        self._socket: socket.socket | None = None
        self._asked: deque[asyncio.Future[ForkedProcess]] = deque()
        self._processes: dict[int, ForkedProcess] = {}
        self._starting = asyncio.Lock()

    async def fork(self, line: int, stacks: int, output: int) -> ForkedProcess:
        """A new copy with these descriptors; the caller closes its own. Raises OSError."""
        async with self._starting:
            if self._socket is None:
                await self._start()
        assert self._socket is not None, "it was started"
        answer: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        try:
            socket.send_fds(self._socket, [b"fork"], [line, stacks, output])
        except OSError:
            self._asked.remove(answer)
            raise
        return await answer

    async def _start(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._server = await asyncio.create_subprocess_exec(
                # -P: modules of the server's folder are not imported.
                *(sys.executable, "-P", "-m", PROGRAM, str(its.fileno())),
                stdin=DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        except OSError:
            mine.close()
            raise
        finally:
            its.close()
        mine.setblocking(False)
        self._socket = mine
        asyncio.get_running_loop().add_reader(mine.fileno(), self._read)

    def _read(self) -> None:
        assert self._socket is not None, "it is not read afterwards"
        while True:
            try:
                packet = self._socket.recv(_PACKET_BYTES)
            except BlockingIOError:  # Nothing more has come: the loop calls again.
                return
            except ConnectionError:
                packet = b""
            if not packet:
                self._lost()
                return
            self._take(json.loads(packet))

    def _take(self, told: dict[str, object]) -> None:
        if "ended" in told:
            process = self._processes.pop(int(str(told["ended"])), None)
            if process is not None:
                process.end(int(str(told["code"])))
            return
        answer, pid = self._asked.popleft(), int(str(told["pid"]))
        if not pid:
            if not answer.done():
                answer.set_exception(OSError(str(told.get("error"))))
            return
        process = self._processes[pid] = ForkedProcess(pid)
        if answer.done():
            process.kill()
        else:
            answer.set_result(process)

    def _lost(self) -> None:
        """The process is gone: nothing tells of the ends of its copies any more, so they are ended."""
        assert self._socket is not None, "it was there"
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        for process in self._processes.values():
            process.kill()
            process.end(-signal.SIGKILL)
        self._processes.clear()
        while self._asked:
            answer = self._asked.popleft()
            if not answer.done():
                answer.set_exception(OSError("the process that starts functions has ended"))

    async def close(self) -> None:
        """Ends the process; all copies have ended before."""
        if self._socket is not None:
            self._lost()
        if self._server is not None:
            await self._server.wait()
