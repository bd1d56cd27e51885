"""Starts the storage process of several broker processes, and starts it again when it ends. Driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.server.processes.storage_seat import READY, StorageSeat

_log = logging.getLogger("magnetar.server")

PROGRAM: Final = "magnetar.server.processes.storage_process"
STOP_S: Final = 30.0
"""Seconds that it may take to end."""
_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 5.0
"""Longest pause in seconds before it is started again. Pauses double while it keeps ending early."""
_STAYED_S: Final = 10.0


class StorageKeeper:
    """`start`, then `close` when no broker process is left."""

    def __init__(self, seat: StorageSeat, lock: int, changed: Callable[[], None]) -> None:
        """`lock`: descriptor that locks the folder where the processes meet. `changed` is called when another
        process has taken its place, and serves."""
        self._lock = lock
        self._changed = changed
        self._seat = seat
        self._tasks = TaskGroup("storage process")
        self._process: Process | None = None
        self._closing = False

    @property
    def pid(self) -> int:
        """Process id; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Returns when it serves. Raises StartupError."""
        if not await self._begin():
            raise StartupError("the storage process could not start; the line above says why")
        self._tasks.spawn(self._keep())

    async def _begin(self) -> bool:
        """Starts it; whether it serves."""
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", PROGRAM),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(self._lock,),
            # Ctrl-C in a terminal is for the supervisor, which stops all in order.
            start_new_session=True,
        )
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        process.stdin.write(f"{self._seat.encode()}\n".encode())
        return await process.stdout.readline() == READY

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s, begun_s = _PAUSE_S, loop.time()
        while True:
            assert self._process is not None, "it was started"
            code = await self._process.wait()
            if self._closing:
                return
            if loop.time() - begun_s > _STAYED_S:
                pause_s = _PAUSE_S
            _log.warning("the storage process has ended with code %d and is started again", code)
            await pause(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            begun_s = loop.time()
            if await self._begin():
                _log.info("the storage process serves again")
                self._changed()

    def kill(self) -> None:
        """Ends it at once."""
        self._closing = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._process.send_signal(number)

    async def close(self) -> None:
        """Ends it in order, and waits for its end."""
        self._closing = True
        await self._tasks.close()
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
