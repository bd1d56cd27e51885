"""Work that goes on when its caller is cancelled; the caller waits for its end even then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


def uninterrupted(
    work: Callable[_P, Coroutine[object, object, _T]],
) -> Callable[_P, Coroutine[object, object, _T]]:
    """For a write that others carry out: a caller that left early would not know how it ended."""

    @wraps(work)
    async def to_its_end(*arguments: _P.args, **named: _P.kwargs) -> _T:
        task, cancelled = asyncio.get_running_loop().create_task(work(*arguments, **named)), None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # no other code retrieves the error
            raise cancelled
        return task.result()

    return to_its_end
