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


def _look(task: asyncio.Task[object]) -> None:
    """All callers may have left: then no other code retrieves the error."""
    if not task.cancelled():
        task.exception()
