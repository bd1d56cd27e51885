"""An event loop in virtual time that many simulated processes share.

Every callback belongs to the process whose code asked for it, by its context. A process that crashes is not
told: nothing of it runs any more, whatever await it stands at, also no `finally`. What it had left is tidied
up at the end of the story, when nothing counts any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sim.world import World

if TYPE_CHECKING:
    from sim.cluster.wires import Wires

_T = TypeVar("_T")

_TIDY_ROUNDS_MAX: Final = 50
_US: Final = 1_000_000


class Process:
    """One life of one node."""

    __slots__ = ("ends", "held", "is_up", "name", "steps_left")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.steps_left = -1
        """After so many more steps between two awaits it crashes; -1: not by itself."""
        self.held: list[Callable[[], None]] | None = None
        """What it does when it goes on; None: it is not paused."""
        self.ends: list[Callable[[], None]] = []
        """What its end means for others."""


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("process", default=None)


class _Handle(asyncio.Handle):
    __slots__ = ("process",)

    process: Process | None


class _Timer(asyncio.TimerHandle):
    __slots__ = ("process",)

    process: Process | None


def _has_begun(task: asyncio.Task[Any]) -> bool:
    work = task.get_coro()
    return not inspect.iscoroutine(work) or inspect.getcoroutinestate(work) != inspect.CORO_CREATED


class SimLoop(asyncio.BaseEventLoop):
    """The loop; `wires` carries its connections."""

    wires: Wires

    def __init__(self, world: World) -> None:
        # Not the base's: it would want a selector. The base only serves to refuse what is not simulated.
        self._world = world
        self._ready: deque[_Handle | _Timer] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._left_undone: list[_Handle | _Timer] = []
        self._tidying = False
        self._is_closed = False
        self.errors: list[str] = []
        """What no code expected."""

    # -- time ---------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now_us / _US

    def call_soon(  # type: ignore[override]  # typeshed's arguments depend on each other
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        handle = _Handle(callback, args, self, context)
        handle.process = context.get(PROCESS)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as call_soon
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        delay_us = max(1, round(delay * _US))
        timer = _Timer(self.time() + delay, callback, args, self, context)
        timer.process = context.get(PROCESS)
        self._world.at(delay_us, self._ready.append, timer)
        return timer

    def call_at(  # type: ignore[override]  # as call_soon
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def run_until(self, until_us: int, done: Callable[[], bool] | None = None) -> None:
        """Lets time pass, until `done` at the most."""
        world, ready = self._world, self._ready
        asyncio._set_running_loop(self)  # what run_forever of every loop does
        try:
            while True:
                while ready:
                    self._step(ready.popleft())
                if done is not None and done():
                    return
                if not world.advance(until_us):
                    return
        finally:
            asyncio._set_running_loop(None)

    def _step(self, handle: _Handle | _Timer) -> None:
        if handle.cancelled():
            return
        process = handle.process
        if process is not None and not self._tidying:
            if process.steps_left >= 0 and process.is_up:
                process.steps_left -= 1
                if process.steps_left < 0:
                    self.kill(process)
            if not process.is_up:
                self._left_undone.append(handle)
                return
            if process.held is not None:
                process.held.append(lambda: self._ready.append(handle))
                return
        handle._run()  # what every loop does with its handles

    # -- processes ----------------------------------------------------------------------------------

    def start(self, process: Process, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs `main` as that process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(main, context=context)

    def within(self, process: Process, action: Callable[..., object], *arguments: Any) -> None:
        """Calls `action` at once, as that process, if it lives."""
        if process.is_up and process.held is not None:
            process.held.append(lambda: self.within(process, action, *arguments))
        elif process.is_up:
            context = contextvars.copy_context()
            context.run(PROCESS.set, process)
            context.run(action, *arguments)

    def pause(self, process: Process) -> None:
        """Nothing of the process runs until `go_on`; what others send it waits."""
        if process.is_up and process.held is None:
            process.held = []

    def go_on(self, process: Process) -> None:
        """The process does all that it did not do while it was paused."""
        held, process.held = process.held or [], None
        for action in held:
            action()

    def kill(self, process: Process) -> None:
        """The process is gone from here on."""
        if process.is_up:
            self._world.note(process.name, "crashes")
            process.is_up = False
            for end in process.ends:
                end()

    def tidy_up(self) -> None:
        """Ends every task that is left, also those of dead processes; nothing that they do has an effect."""
        self._tidying = True
        self._ready.extendleft(reversed(self._left_undone))
        asyncio._set_running_loop(self)
        try:
            # A task that never began does so now: cancelled before, it would leave its coroutines unawaited.
            for _ in range(len(self._ready)):
                self._step(self._ready.popleft())
            for _ in range(_TIDY_ROUNDS_MAX):
                left = [task for task in self._tasks if not task.done()]
                if not left:
                    break
                for task in left:
                    # One that was made meanwhile begins in this round, and is cancelled in the next.
                    if _has_begun(task):
                        task.cancel()
                while self._ready:
                    self._step(self._ready.popleft())
        finally:
            asyncio._set_running_loop(None)
        self._is_closed = True

    # -- what asyncio asks of a loop ------------------------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # typeshed's has more arguments
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._tidying:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def run_in_executor(  # type: ignore[override]  # typeshed's arguments depend on each other
        self, executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        done: asyncio.Future[_T] = self.create_future()
        process = PROCESS.get()
        assert process is not None

        def work() -> None:
            if done.done():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  # its caller gets the error
                done.set_exception(error)

        self._world.at(self._world.random.randint(1, 2_000), self.within, process, work)
        return done

    async def create_connection(  # type: ignore[override]  # of its many arguments two are used
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        return await self.wires.connect(protocol_factory, f"{host}:{port}")
