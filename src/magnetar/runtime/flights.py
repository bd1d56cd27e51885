"""A piece of work that several wait for, and that ends whether or not any of them still does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Flight(Generic[_T]):
    """Begins at once."""

    __slots__ = ("_task",)

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(_look)

    @property
    def landed(self) -> bool:
        """Whether the work has ended, in whatever way."""
        return self._task.done()

    async def landing(self, seconds: float) -> _T:
        """The work's result or error. Raises TimeoutError when it does not end in so long.

        Neither that nor the caller's cancellation ends the work.
        """
        if seconds <= 0 and not self._task.done():
            raise TimeoutError
        async with asyncio.timeout(max(0.0, seconds)):
            # `shield` raises CancelledError when the task itself was cancelled too: the process ends then.
            return await asyncio.shield(self._task)

    async def cancel(self) -> None:
        """Ends the work where it stands."""
        self._task.cancel()
        await asyncio.wait((self._task,))


def _look(task: asyncio.Task[Any]) -> None:
    """Everybody who waited may be gone: then nobody else looks at the error."""
    if not task.cancelled():
        task.exception()
