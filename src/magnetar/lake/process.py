"""The broker's side of the worker process, which starts with the first call and ends when idle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol

from magnetar.lake.lake_values import CatalogSettings, LakeConflictError, LakeError, LakeSetupError
from magnetar.runtime.tasks import begin, call_later, ended

PROGRAM: Final = "magnetar.lake.lake_worker"
IDLE_S: Final = 60.0
"""Seconds after which an idle worker ends, which frees about 150 MB of memory."""
CALL_S: Final = 600.0
"""Seconds without progress after which a call fails and the worker is ended."""
_LINE_BYTES_MAX: Final = 256 << 20
_KINDS: Final[dict[str, type[LakeError]]] = {"setup": LakeSetupError, "conflict": LakeConflictError}
_EXIT_WAIT_S: Final = 5.0

At = Callable[[int, int], None]
"""Called with the progress of a call: done, total."""


class LakeWorker(Protocol):
    """Reads and changes tables; `lake_worker.py` lists the requests."""

    async def call(self, what: str, at: At | None = None, **request: object) -> Any:
        """Sends a request and returns its answer. Raises LakeError, LakeSetupError, LakeConflictError. When
        the caller is cancelled, the worker continues, and the answer is dropped."""

    async def close(self) -> None:
        """Ends the process; calls under way raise LakeError."""


@dataclass(frozen=True, slots=True)
class LakeWorkers:
    """The processes that change tables."""

    follow: LakeWorker
    """Has tables follow the lists, and answers."""
    upkeep: LakeWorker
    """Makes long calls, so that others do not wait for them."""


def is_installed() -> bool:
    """Whether the libraries are installed. Imports none of them."""
    return all(find_spec(name) is not None for name in ("pyiceberg", "sqlalchemy", "pyarrow"))


class _Call:
    """A call that is not answered yet."""

    __slots__ = ("answer", "at", "process")

    def __init__(self, process: asyncio.subprocess.Process, at: At | None) -> None:
        self.process = process
        self.answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.at = at


class WorkerProcess:
    """See `LakeWorker`."""

    def __init__(
        self,
        settings: CatalogSettings,
        *,
        idle_s: float = IDLE_S,
        call_s: float = CALL_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts no process yet. `idle_s`: seconds without a call after which the process ends. `call_s`:
        seconds without progress after which a call fails. `environment`: its environment; None: this
        process's."""
        self._settings = settings
        self._idle_s = idle_s
        self._call_s = call_s
        self._environment = environment
        self._numbers = itertools.count(1)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._calls: dict[int, _Call] = {}
        self._starting = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while no process runs."""
        return None if self._process is None else self._process.pid

    async def call(self, what: str, at: At | None = None, **request: object) -> object:
        async with self._starting:
            if self._closed:
                raise LakeError("the broker stops")
            process = self._process or await self._start()
            number = next(self._numbers)
            call = self._calls[number] = _Call(process, at)
            self._wait_for_more()
            assert process.stdin is not None
            try:
                process.stdin.write(_line({"id": number, "do": what, **request}))
                await process.stdin.drain()
            except (OSError, RuntimeError):
                # The reader sees the end as well, and tells all calls.
                pass
        return await asyncio.shield(call.answer)

    async def _start(self) -> asyncio.subprocess.Process:
        if not is_installed():
            raise LakeSetupError("tables need pyiceberg: pip install '.[lake]' in a clone")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
                env=None if self._environment is None else dict(self._environment),
            )
        except OSError as error:
            raise LakeError(f"the worker for tables cannot be started: {error}") from error
        assert process.stdin is not None
        process.stdin.write(_line(self._settings.to_json()))
        self._process = process
        self._reading = begin(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        # The worker has ended or sent invalid bytes; `_ended` fails every call below.
        with contextlib.suppress(OSError, ValueError):
            while line := await process.stdout.readline():
                self._heard(json.loads(line))
        self._ended(process)
        await _reap(process)

    def _heard(self, said: dict[str, Any]) -> None:
        call = self._calls.get(said["id"])
        if call is not None and "at" in said:
            if call.at is not None:
                call.at(*said["at"])
        elif call is not None:
            del self._calls[said["id"]]
            if "error" in said:
                self._fail(call, _KINDS.get(said["kind"], LakeError)(said["error"]))
            elif not call.answer.done():
                call.answer.set_result(said["done"])
        self._wait_for_more()

    def _ended(self, process: asyncio.subprocess.Process) -> None:
        if self._process is process:
            self._process = None
        lost = [number for number, call in self._calls.items() if call.process is process]
        for number in lost:
            error = LakeError("the worker for tables ended in the middle of the work")
            self._fail(self._calls.pop(number), error)

    @staticmethod
    def _fail(call: _Call, error: LakeError) -> None:
        if not call.answer.done():
            call.answer.set_exception(error)
            # A caller that was cancelled asks for it no more.
            call.answer.exception()

    def _wait_for_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = self._call_s if self._calls else self._idle_s
        self._timer = call_later(wait_s, self._kill)

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            self._process = None
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                process.kill()

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._kill()
        if self._reading is not None:
            await ended(self._reading)


async def _reap(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        process.kill()
    with contextlib.suppress(TimeoutError):  # a process that cannot be reaped is left to init: it was killed
        async with asyncio.timeout(_EXIT_WAIT_S):
            await process.wait()


def _line(said: Mapping[str, object]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"
