"""The broker's side of one query's process."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Final, Protocol

from magnetar.runtime.tasks import TaskGroup
from magnetar.sql.serving.query_frames import PREFIX, WorkerQuestion, WorkerReading, line_of, size_of

PROGRAM: Final = "magnetar.sql.serving.query_worker"
_READ_BYTES: Final = 256 << 10
"""Bytes of frames that are read ahead of their client."""
_PAGE_BYTES: Final = resource.getpagesize()
_MIB: Final = 1 << 20


class AnyQueryProcess(Protocol):
    """One process, for one query."""

    @property
    def has_ended(self) -> bool:
        """Whether it cannot answer any more."""

    async def say(self, said: WorkerQuestion | WorkerReading) -> None:
        """Writes a line. When the process has ended, `frame` tells it."""

    async def frame(self) -> tuple[bytes, bytes] | None:
        """The next frame: kind, body. None: there are no more. Raises ValueError when it is not one."""

    def resident_mib(self) -> int:
        """Its memory in MiB; 0 when it is unknown."""

    def kill(self) -> None:
        """Ends it, whatever it does; may be called again."""


class QueryProcess:
    """See `AnyQueryProcess`."""

    def __init__(self, process: asyncio.subprocess.Process, tasks: TaskGroup) -> None:
        self._process = process
        self._killed = False
        tasks.spawn(_reap(process))

    @property
    def has_ended(self) -> bool:
        return self._killed or self._process.returncode is not None

    async def say(self, said: WorkerQuestion | WorkerReading) -> None:
        assert self._process.stdin is not None
        # It has ended: the reader sees that, and tells the caller.
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(line_of(said))
            await self._process.stdin.drain()

    async def frame(self) -> tuple[bytes, bytes] | None:
        assert self._process.stdout is not None
        try:
            kind, size = size_of(await self._process.stdout.readexactly(PREFIX.size))
            return kind, await self._process.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            # What a killed process had begun to write is dropped.
            return None

    def resident_mib(self) -> int:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError, ValueError):
            # It has ended, or the system has no such file: then only the engine's own limit holds.
            return 0
        return pages * _PAGE_BYTES // _MIB

    def kill(self) -> None:
        self._killed = True
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self._process.kill()


async def start_process(tasks: TaskGroup) -> QueryProcess:
    """Starts a process, which loads the engine and waits for its question. Raises OSError.

    `tasks`: has its end noticed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", PROGRAM, stdin=PIPE, stdout=PIPE, limit=_READ_BYTES
    )
    return QueryProcess(process, tasks)


async def _reap(process: asyncio.subprocess.Process) -> None:
    await process.wait()
