"""Background work with a parent: no task outlives its group, no exception is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Final, Generic, TypeVar

from magnetar.base.errors import MetadataError

_log = logging.getLogger("magnetar.runtime")

_T = TypeVar("_T")

_PATIENCE_S: Final = 60.0
"""Seconds that a cancelled task may take to clean up before it is cancelled again."""


class TaskGroup:
    """Tasks that end together.

    Unlike asyncio.TaskGroup it lives as long as its owner, not as long as a block of code, and a failed task
    is logged without ending its siblings: one connection's bug must not stop a broker.
    """

    __slots__ = ("_closed", "_name", "_tasks")

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Runs `work` in the background. After `close` it is discarded without being started."""
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def adopt(self, task: asyncio.Task[_T]) -> None:
        """`close` ends this task too; its result and its error are its maker's."""
        if self._closed:
            task.cancel()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def every(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` repeatedly, `interval_s` seconds after its last end; its failures are logged."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    await work()
                except MetadataError as error:
                    # A traceback would look like a bug, and this is a service that is away.
                    _log.warning("%s: periodic work is tried again: %s", self._name, error)
                except Exception:  # noqa: BLE001  # one failed round must not end the rounds
                    _log.exception("%s: periodic work failed", self._name)

        self.spawn(repeat())

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: background work failed", self._name, exc_info=error)

    async def drain(self, timeout_s: float) -> None:
        """Waits until all tasks have ended, at most `timeout_s` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Cancels the running tasks and waits for their end; later `spawn`s are discarded.

        A library may swallow the one cancellation that a task gets, so it is repeated every minute.
        """
        self._closed = True
        running = set(self._tasks)
        while running:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=_PATIENCE_S)
            if running:
                _log.warning("%s: %d tasks continue although they were cancelled", self._name, len(running))


async def called_back(ask: Callable[[Callable[[], None]], None]) -> None:
    """Returns when what it gives to `ask` is called. When the caller was cancelled, the call does nothing."""
    called = asyncio.get_running_loop().create_future()
    ask(lambda: None if called.done() else called.set_result(None))
    await called


class SingleFlight(Generic[_T]):
    """Callers that want the same thing share one attempt to get it."""

    __slots__ = ("_attempts", "_owner")

    def __init__(self, owner: TaskGroup | None = None) -> None:
        """`owner` ends the attempts when it closes; None: they end by themselves, soon."""
        self._attempts: dict[Hashable, asyncio.Task[_T]] = {}
        self._owner = owner

    async def run(self, key: Hashable, attempt: Callable[[], Coroutine[object, object, _T]]) -> _T:
        """The result or error of the running attempt for `key`, started when there is none.

        A cancelled caller leaves the attempt running for the others.
        """
        task = self._attempts.get(key)
        # An attempt that ended in this turn of the loop is still in the table. A caller that asks in a loop
        # until something is done would get its result at once, for ever, and the loop could never remove it.
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(attempt())
            self._attempts[key] = task
            if self._owner is not None:
                self._owner.adopt(task)
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(task)

    def running(self, key: Hashable) -> bool:
        """Whether an attempt for `key` runs."""
        task = self._attempts.get(key)
        return task is not None and not task.done()

    def _ended(self, key: Hashable, task: asyncio.Task[_T]) -> None:
        if self._attempts.get(key) is task:
            del self._attempts[key]
        if not task.cancelled():
            # All callers may have left: then no other code retrieves the error.
            task.exception()

    async def settled(self, key: Hashable) -> None:
        """Returns when no attempt for `key` runs any more."""
        while (task := self._attempts.get(key)) is not None:
            await asyncio.wait((task,))
            self._ended(key, task)


class Rounds:
    """Work that reads the whole state: a request during a run makes it run once more afterwards."""

    __slots__ = ("_again", "_running", "_spawn", "_work")

    def __init__(
        self,
        work: Callable[[], Coroutine[object, object, None]],
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        self._work = work
        self._spawn = spawn
        self._running = False
        self._again = False

    @property
    def is_running(self) -> bool:
        """Whether a round has begun and not ended."""
        return self._running

    def ask(self) -> None:
        """Requests a run that begins after this call; several requests may share one."""
        if self._running:
            self._again = True
            return
        self._running = True
        self._spawn(self._run())

    async def _run(self) -> None:
        self._again = False
        try:
            await self._work()
        finally:
            self._running = False
            if self._again:
                self.ask()


def soon(work: Callable[[], None]) -> None:
    """Calls `work` in the next turn of the event loop."""
    asyncio.get_running_loop().call_soon(work)


async def pause(seconds: float) -> None:
    """Waits for the given seconds."""
    await asyncio.sleep(seconds)


def begin(work: Coroutine[object, object, _T]) -> asyncio.Task[_T]:
    """Runs `work` in the background for one owner, which keeps the task, retrieves its result and cancels it.

    Work whose result is not used belongs into a `TaskGroup`.
    """
    return asyncio.get_running_loop().create_task(work)


async def gathered(works: Iterable[Awaitable[_T]]) -> list[_T]:
    """Runs all at the same time; returns their results in the same order.

    Raises the first error at once; the others go on until they end. When cancelled, it cancels all of them.
    """
    return await asyncio.gather(*works)


async def settled(works: Iterable[Awaitable[_T]]) -> list[_T | BaseException]:
    """Runs all at the same time; returns their results or errors in the same order once all have ended."""
    return await asyncio.gather(*works, return_exceptions=True)


async def ended(*tasks: asyncio.Task[object], within_s: float | None = None) -> None:
    """Returns when all have ended, or after the given seconds. Does not cancel them, even when it is
    cancelled itself."""
    if tasks:
        await asyncio.wait(tasks, timeout=within_s)


async def race(*works: Coroutine[object, object, object]) -> tuple[asyncio.Task[object], ...]:
    """Runs all until the first of them has ended, and cancels the others.

    Returns their tasks in the same order, each of which has ended: with a result, with an error, or
    cancelled. An error that the caller does not retrieve is lost. When cancelled, it cancels all of them.
    """
    tasks = tuple(begin(work) for work in works)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
    return tasks


def won(task: asyncio.Task[object]) -> bool:
    """Whether a task of a `race` ended before it was cancelled; raises its error if it has one."""
    if task.cancelled():
        return False
    task.result()
    return True


def call_later(seconds: float, call: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
    """Calls `call(*arguments)` on the event loop after the given seconds, unless the handle is cancelled
    before."""
    return asyncio.get_running_loop().call_later(seconds, call, *arguments)


def stop_loop(seconds: float) -> None:
    """Stops the event loop itself: no callback runs and no socket is read for this time.

    For fractions of a millisecond after which everything that came is one piece of work. Whatever else may
    wait waits too, so the caller shows by measurement that it pays.
    """
    time.sleep(seconds)


async def in_slices(items: Iterable[_T], per_turn: int) -> AsyncIterator[_T]:
    """Yields the items; after each `per_turn` of them other tasks run."""
    for number, item in enumerate(items, 1):
        yield item
        if number % per_turn == 0:
            await asyncio.sleep(0)


async def yield_loop() -> None:
    """Lets other tasks run before this one goes on."""
    await asyncio.sleep(0)


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event, at most `seconds`; returns whether it was set."""
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes in the turn in which the event
        # is set, and the task that was to end goes on.
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
