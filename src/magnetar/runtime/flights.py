"""A piece of work with several waiting callers, which ends whether or not any of them still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Flight(Generic[_T]):
    """Starts the work at once, as a task."""

    __slots__ = ("_task",)

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
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


def _look(task: asyncio.Task[Any]) -> None:
    """All callers may have left: then no other code retrieves the error."""
    if not task.cancelled():
        task.exception()
