"""Work that computes or waits for milliseconds, beside the event loop; and threads of blocking programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

Result = TypeVar("Result")
Given = ParamSpec("Given")


async def in_thread(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Runs `work` in a thread of the loop's pool; returns its result or raises its error.

    Only for system calls and C code that release the interpreter's lock; Python code would still block the
    loop. When the caller is cancelled, `work` goes on and its result is dropped.
    """
    return await asyncio.to_thread(work, *args, **kwargs)


async def in_turn(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Like `in_thread`, but one call of the process after another, in their order.

    For payloads of many megabytes that are opened for a client: several at once would take the processor
    cores, and the memory, of all others.
    """
    return await _TURN.run(work, *args, **kwargs)


class OneThread:
    """A thread of its own, which runs its calls one after the other in their order."""

    __slots__ = ("_pool",)

    def __init__(self, name: str, *, first: Callable[[], object] | None = None) -> None:
        self._pool = ThreadPoolExecutor(1, name, initializer=first)

    def run(
        self, work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> asyncio.Future[Result]:
        """Queues a call; its result or error arrives on the event loop."""
        return asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))

    def wait_for(self, work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Runs a call and returns its result or raises its error; blocks the calling thread, which must not
        be the event loop's."""
        return self._pool.submit(work, *args, **kwargs).result()

    def close(self) -> None:
        """Ends the thread after the queued calls; later calls raise RuntimeError."""
        self._pool.shutdown(wait=False)


_TURN: Final = OneThread("large-payloads")
"""Its thread starts with its first call."""


def pool(count: int, name: str) -> ThreadPoolExecutor:
    """Threads for a program that blocks: at most `count`; they end with the `with` block."""
    return ThreadPoolExecutor(count, name)


def beside(work: Callable[..., object], *arguments: object, name: str) -> threading.Thread:
    """Starts a thread of a program that blocks; it does not keep the process alive."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    thread.start()
    return thread
