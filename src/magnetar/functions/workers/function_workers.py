"""The workers of this machine: as many processes as functions have instances. Driver.

It follows the catalogue: what is new is started, what is gone or stopped is stopped, what has another version
is stopped and then started. An instance that ends by itself is started again after a pause. A stop finishes
what is under way; a kill loses nothing, because acknowledgements follow receipts.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final
from uuid import uuid4

from magnetar.base.errors import MagnetarError
from magnetar.functions.errors import NoOwnerError, NoSuchInstanceError, StateFileError, TriggerError
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.ports import (
    FunctionCatalogue,
    FunctionCredentials,
    InstanceStats,
    InstanceStatus,
    OutputPart,
    StateValue,
    StoredFunction,
)
from magnetar.functions.state.state_change import StateChange
from magnetar.functions.state.state_file import StateFile, remove_state, take_over
from magnetar.functions.workers.figures import stats_of, status_of
from magnetar.functions.workers.forks import Forks
from magnetar.functions.workers.hosted import Host, HostedInstance
from magnetar.functions.workers.instance_metrics import ToldFigures
from magnetar.functions.workers.output_log import OutputLog
from magnetar.functions.workers.plans import CODE_FOLDER, WorkerPlace, old_state_path, plan_of, state_path
from magnetar.functions.workers.restarts import Restarts
from magnetar.functions.workers.worker_process import InstanceProcess, Results
from magnetar.runtime.tasks import TaskGroup, gathered, pause, race
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.functions")

_AGAIN_S: Final = 1.0
"""Seconds before the catalogue is read again after an error."""
_LOOK_S: Final = 0.05
"""Seconds between two looks whether an instance runs, for a trigger that waits for one."""
TRIGGER_S: Final = 15.0
"""Seconds that a triggered message may take, also on a busy machine where its instance has just begun."""
STUCK_S: Final = 5.0
"""Seconds without an answer after which an instance counts as stuck, and its stack is shown."""


class _Seat:
    """The place of one instance, over all its processes."""

    def __init__(self, function: StoredFunction, number: int) -> None:
        self.function = function
        self.number = number
        self.restarts = Restarts()
        self.output = OutputLog()
        self.process: HostedInstance | None = None
        self.leave = asyncio.Event()
        """Set when it shall end."""
        self.again = asyncio.Event()
        """Set when a pause shall end."""
        self.gone = asyncio.Event()

    @property
    def key(self) -> tuple[str, int]:
        """Function and number."""
        return self.function.full_name, self.number


class LocalFunctionWorkers:
    """Implements FunctionWorkers with processes of this machine. `start`, then `close`."""

    def __init__(
        self,
        catalogue: FunctionCatalogue,
        place: Callable[[], WorkerPlace],
        credentials: FunctionCredentials,
        host: Host | None = None,
    ) -> None:
        """`place` is asked at each start of a process: ports may change. So are `credentials`: a token lives
        no longer than its process. `host`: makes processes; None: real ones."""
        self._catalogue = catalogue
        self._place = place
        self._credentials = credentials
        self._seats: dict[tuple[str, int], _Seat] = {}
        self._results: Results = {}
        self._forks = Forks()
        self._host = host or self._process
        self._tasks = TaskGroup("function workers")

    def start(self) -> None:
        """Begins to follow the catalogue; nothing is started before it has a function."""
        # What a killed server has left: each process unpacks its code itself.
        shutil.rmtree(self._place().folder / CODE_FOLDER, ignore_errors=True)
        self._tasks.spawn(self._follow())

    async def close(self) -> None:
        """Stops all instances; returns when their processes have ended."""
        seats = list(self._seats.values())
        for seat in seats:
            seat.leave.set()
        await gathered(seat.gone.wait() for seat in seats)
        await self._tasks.close()
        await self._forks.close()

    async def _follow(self) -> None:
        while True:
            try:
                await self._look()
                await self._catalogue.changed()
            except MagnetarError as error:
                # What runs goes on, and what is wanted is read again.
                _log.warning("functions cannot be read, which is tried again: %s", error)
                await pause(_AGAIN_S)

    async def _look(self) -> None:
        """Begins and ends instances as the catalogue says."""
        wanted = {
            (function.full_name, number): function
            for function in await self._catalogue.functions()
            for number in range(function.config.parallelism)
            if number not in function.stopped
        }
        for key, seat in list(self._seats.items()):
            function = wanted.get(key)
            if function is None or function.version != seat.function.version:
                seat.leave.set()
        for key, function in wanted.items():
            if key not in self._seats:
                self._begin(_Seat(function, key[1]))

    def _begin(self, seat: _Seat) -> None:
        self._seats[seat.key] = seat
        self._tasks.spawn(self._keep(seat))

    async def _keep(self, seat: _Seat) -> None:
        """Keeps an instance running until it shall leave."""
        try:
            while not seat.leave.is_set():
                pause_s = await self._run(seat)
                seat.again.clear()
                if pause_s and not seat.leave.is_set():
                    await _either(seat.leave, seat.again, pause_s)
        finally:
            # A newer version is begun only now: two versions never run at the same time.
            if self._seats.get(seat.key) is seat:
                del self._seats[seat.key]
            seat.gone.set()
        await self._begin_newer(seat)

    async def _begin_newer(self, seat: _Seat) -> None:
        while True:
            try:
                functions = await self._catalogue.functions()
                break
            except MagnetarError as error:
                _log.warning("functions cannot be read, which is tried again: %s", error)
                await pause(_AGAIN_S)
        for function in functions:
            wanted = (
                function.full_name == seat.function.full_name and seat.number < function.config.parallelism
            )
            if wanted and seat.number not in function.stopped and seat.key not in self._seats:
                self._begin(_Seat(function, seat.number))

    async def _run(self, seat: _Seat) -> float:
        """One process from its start to its end; returns the seconds until the next one."""
        try:
            token = self._credentials.issue(seat.function)
        except NoOwnerError as error:
            _log.warning("function %s/%d does not run: %s", *seat.key, error)
            return seat.restarts.ended(0.0, str(error))
        try:
            return await self._run_with(token, seat)
        finally:
            self._credentials.withdraw(token)

    async def _run_with(self, token: str, seat: _Seat) -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await in_thread(self._own_state, seat.function)
        except StateFileError as wrong:
            _log.warning("function %s/%d does not run: %s", *seat.key, wrong)
            return seat.restarts.ended(0.0, str(wrong))
        plan = plan_of(seat.function, seat.number, self._place(), token)
        process = self._host(plan, seat.output)
        try:
            await process.start()
        except OSError as cause:
            # No memory, no descriptor, no process more: it may be there after a pause.
            pause_s = seat.restarts.ended(0.0, f"no process can be started: {cause}")
            _log.warning("function %s/%d: no process can be started: %s", *seat.key, cause)
            return pause_s
        seat.process = process
        try:
            watch = TaskGroup("end of a function")
            watch.spawn(self._stop_when_told(seat, process))
            error = await process.ended()
            await watch.close()
        except BaseException:
            process.kill()
            raise
        finally:
            seat.process = None
            await process.close()
            # Its code is unpacked anew at the next start, which may be that of another version.
            await in_thread(shutil.rmtree, plan.code_folder, ignore_errors=True)
        if seat.leave.is_set() or seat.again.is_set():
            return 0.0
        pause_s = seat.restarts.ended(loop.time() - began_s, error or "the process ended without a word")
        _log.warning(
            "function %s/%d has ended and is started again in %.1f s: %s", *seat.key, pause_s, error[-500:]
        )
        return pause_s

    def _process(self, plan: InstancePlan, output: OutputLog) -> HostedInstance:
        return InstanceProcess(plan, self._results, output, self._forks)

    async def _stop_when_told(self, seat: _Seat, process: HostedInstance) -> None:
        await _either(seat.leave, seat.again, None)
        await process.stop()

    def figures(self) -> list[ToldFigures]:
        """What the instances told last; asks them for more. For metrics, which do not wait."""
        found = []
        for (_, number), seat in sorted(self._seats.items()):
            process = seat.process
            running = process is not None and process.is_running
            if process is not None and running:
                process.tell({"do": "status"})
            told = {} if process is None else process.status
            found.append(ToldFigures(seat.function, number, told, running, seat.restarts.count))
        return found

    # ------------------------------------------------------------ FunctionWorkers

    async def status(self, function: StoredFunction) -> list[InstanceStatus]:
        """See FunctionWorkers."""
        numbers = range(function.config.parallelism)
        return await gathered(self._status(function, number) for number in numbers)

    async def _status(self, function: StoredFunction, number: int) -> InstanceStatus:
        seat = self._seats.get((function.full_name, number))
        if seat is None or number in function.stopped:
            return InstanceStatus(instance=number, running=False, state="STOPPED")
        process = seat.process
        if process is None:
            return status_of(
                number, {}, state="FAILED", error=seat.restarts.error, restarts=seat.restarts.count
            )
        stack = await self._stack_if_stuck(process)
        if stack:
            state, error = "STUCK", stack
        elif not process.is_running:
            state, error = "STARTING", seat.restarts.error
        else:
            state, error = str(process.status.get("state", "STARTING")), str(process.status.get("detail", ""))
        return status_of(
            number, process.status, state=state, error=error, restarts=seat.restarts.count, pid=process.pid
        )

    async def _stack_if_stuck(self, process: HostedInstance) -> str:
        """Asks an instance; the stack of one that has not answered for a while."""
        if await process.ask() or not process.is_running:
            return ""
        silent_s = asyncio.get_running_loop().time() - process.answered_s
        if silent_s < STUCK_S:
            return ""
        stack = await process.stack()
        return f"no answer for {silent_s:.0f} s; it is in:\n{stack}" if stack else ""

    async def stats(self, function: StoredFunction) -> list[InstanceStats]:
        """See FunctionWorkers."""
        return await gathered(self._stats(function, number) for number in range(function.config.parallelism))

    async def _stats(self, function: StoredFunction, number: int) -> InstanceStats:
        seat = self._seats.get((function.full_name, number))
        if seat is None or seat.process is None:
            return InstanceStats(instance=number)
        process = seat.process
        await process.ask()
        return stats_of(number, process.status)

    def output(self, function: StoredFunction, instance: int, start: int) -> OutputPart:
        """See FunctionWorkers."""
        seat = self._seats.get((function.full_name, instance))
        return OutputPart(0, 0, b"") if seat is None else seat.output.part(start)

    async def restart(self, function: StoredFunction, instance: int | None) -> None:
        """See FunctionWorkers."""
        numbers = range(function.config.parallelism) if instance is None else (instance,)
        seats = [self._seats.get((function.full_name, number)) for number in numbers]
        if instance is not None and seats[0] is None:
            raise NoSuchInstanceError(function.full_name, instance)
        for seat in seats:
            if seat is not None:
                seat.restarts.asked()
                seat.again.set()
                if seat.process is not None:
                    seat.process.is_running = False

    async def end(self, function: StoredFunction, *, forget: bool) -> None:
        """See FunctionWorkers."""
        seats = [seat for (name, _), seat in self._seats.items() if name == function.full_name]
        for seat in seats:
            seat.leave.set()
        await gathered(seat.gone.wait() for seat in seats)
        if forget:
            await in_thread(lambda: remove_state(self._own_state(function)))

    async def trigger(self, function: StoredFunction, topic: str | None, value: bytes) -> bytes | None:
        """See FunctionWorkers."""
        names = [name for name, each in function.config.inputs.items() if not each.is_regex]
        if topic is None and len(names) != 1:
            raise TriggerError("Function in trigger function has more than 1 input topics")
        if topic is not None and topic not in names:
            raise TriggerError("Function in trigger function has unidentified topic")
        processes = self._running(function)
        until = asyncio.get_running_loop().time() + TRIGGER_S
        while not processes:
            if asyncio.get_running_loop().time() >= until:
                raise TriggerError("Function in trigger function is not ready")
            # A function that was just created or started is triggered as soon as it can be.
            await pause(_LOOK_S)
            processes = self._running(function)
        trigger = uuid4().hex
        result: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._results[trigger] = result
        shown = base64.b64encode(value).decode()
        processes[0].tell({"do": "publish", "topic": topic or names[0], "value": shown, "trigger": trigger})
        try:
            async with asyncio.timeout(TRIGGER_S):
                return await result
        except TimeoutError:
            raise TriggerError("Request Timed Out", timed_out=True) from None
        finally:
            self._results.pop(trigger, None)

    def _running(self, function: StoredFunction) -> list[HostedInstance]:
        return [
            seat.process
            for seat in self._seats.values()
            if seat.function.full_name == function.full_name
            and seat.process is not None
            and seat.process.is_running
        ]

    async def state_get(self, function: StoredFunction, key: str) -> StateValue | None:
        """See FunctionWorkers."""
        return await in_thread(lambda: _read(self._own_state(function), key))

    async def state_put(self, function: StoredFunction, key: str, value: bytes) -> None:
        """See FunctionWorkers."""
        await in_thread(lambda: _write(self._own_state(function), key, value))

    def _own_state(self, function: StoredFunction) -> Path:
        """Where the state is, which may have been elsewhere before. Raises StateFileError."""
        folder = self._place().folder
        path = state_path(function, folder)
        take_over(old_state_path(function, folder), path)
        return path


def _read(path: Path, key: str) -> StateValue | None:
    if not path.exists():
        return None
    with StateFile(path) as state:
        return state.get(key)


def _write(path: Path, key: str, value: bytes) -> None:
    change = StateChange()
    change.put(value)
    with StateFile(path) as state:
        state.commit({key: change})


async def _either(first: asyncio.Event, second: asyncio.Event, seconds: float | None) -> None:
    """Returns when one of the events is set, or after the given seconds."""
    works: list[Coroutine[object, object, object]] = [first.wait(), second.wait()]
    if seconds is not None:
        works.append(_after(seconds))
    await race(*works)


async def _after(seconds: float) -> bool:
    await pause(seconds)
    return True
