"""Work that several callers wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Flight(Generic[_T]):
    """Starts the work at once, as a task, which ends whether or not any caller still waits."""

    __slots__ = ("_task",)

    def __init__(self, work: Coroutine[object, object, _T]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(_look)

    @property
    def landed(self) -> bool:
        """Whether the work has ended, with a result, an error or cancelled."""
        return self._task.done()

    async def landing(self, seconds: float) -> _T:
        """The work's result or error. Raises TimeoutError when it does not end within the given time.

        Neither a timeout nor the caller's cancellation ends the work.
        """
        if seconds <= 0 and not self._task.done():
            raise TimeoutError
        async with asyncio.timeout(max(0.0, seconds)):
            # `shield` raises CancelledError also when the task itself was cancelled, which happens when the
            # process ends.
            return await asyncio.shield(self._task)

    async def cancel(self) -> None:
        """Cancels the work."""
        self._task.cancel()
        await asyncio.wait((self._task,))


class OneAtATime:
    """Of callers that want the same thing one does it; the others wait until it has ended, and look again.

    Cheaper than a `SingleFlight` where nearly always one comes alone: there is no task. What the one that
    does it meets, an error or its cancellation, is its own.
    """

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[None] | None] = {}

    async def run(self, key: Hashable, work: Callable[[], Coroutine[object, object, None]]) -> bool:
        """Does the work, or returns when what runs for `key` has ended, however: whether it did it itself."""
        if key in self._running:
            waiting = self._running[key]
            if waiting is None:
                waiting = self._running[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(waiting)
            return False
        self._running[key] = None
        try:
            await work()
        finally:
            waiting = self._running.pop(key)
            if waiting is not None:
                waiting.set_result(None)
        return True


class NextFlight(Generic[_T]):
    """Callers that want the present state of the same thing share work that begins after their calls.

    One piece of work runs at a time, however many callers there are, and each gets what is newer than its
    call.
    """

    __slots__ = ("_next", "_running", "_work")

    def __init__(self, work: Callable[[], Coroutine[object, object, _T]]) -> None:
        self._work = work
        self._running: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None
        """It begins when the running one has ended."""

    async def landing(self) -> _T:
        """The result or error of work that has not begun yet. A cancelled caller leaves it to the others."""
        task = self._next
        if task is None:
            task = self._next = asyncio.get_running_loop().create_task(self._fly(self._running))
            task.add_done_callback(_look)
        return await asyncio.shield(task)

    async def _fly(self, earlier: asyncio.Task[_T] | None) -> _T:
        if earlier is not None:
            await asyncio.wait((earlier,))
        mine = self._running = self._next
        self._next = None
        try:
            return await self._work()
        finally:
            # Else the last result would stay in memory. Another one begins in a later turn only.
            if self._running is mine:
                self._running = None


def _look(task: asyncio.Task[object]) -> None:
    """All callers may have left: then no other code retrieves the error."""
    if not task.cancelled():
        task.exception()
