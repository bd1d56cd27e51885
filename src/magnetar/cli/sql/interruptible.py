"""Work of a query that Ctrl-C ends at once.

The engine looks for an interruption while it reads rows, and not while it computes an expression of
constants, which can take minutes. So it works in a thread of its own. When it does not end soon after Ctrl-C,
it is left alone, and what it holds is freed when it has ended.
"""

from __future__ import annotations

import contextlib
import queue
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar, cast

from magnetar.runtime.threads import beside

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")

PATIENCE_S: Final = 1.0
"""Seconds for the engine to end after Ctrl-C."""
_LOOK_S: Final = 0.1
"""Seconds between two looks for a signal."""
_Call = tuple[Callable[[], object], "Future[object]"]


class Interruptible:
    """Runs one call after the other beside the main thread, which a signal can wake."""

    def __init__(self, stop: Callable[[], None], *, patience_s: float = PATIENCE_S) -> None:
        """`stop`: asks the running call to end; it is called from a handler of a signal."""
        self._stop = stop
        self._patience_s = patience_s
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()  # One call, and the end.
        # A handler of a signal may put into it while the main thread takes from it, or puts. An event could
        # not be set then: the handler would wait for a lock that the main thread below it holds.
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()  # One for a call, one for each signal.
        self._interrupted = False
        self.abandoned = False
        """Whether a call goes on although nothing waits for it."""
        beside(self._serve, name="query")

    def __enter__(self) -> Interruptible:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def call(self, work: Callable[[], T]) -> T:
        """Returns what the work returns, or raises what it raises; after Ctrl-C KeyboardInterrupt, also when
        the signal came between two calls."""
        if self._has_signal():
            raise KeyboardInterrupt
        answer: Future[object] = Future()
        answer.add_done_callback(lambda _: self._woken.put(None))
        self._calls.put((work, answer))
        self._wait()
        if self._has_signal():
            try:
                answer.exception(self._patience_s)
            except TimeoutError:
                self.abandoned = True
            raise KeyboardInterrupt
        return cast(T, answer.result())

    def _has_signal(self) -> bool:
        return self._interrupted

    def _wait(self) -> None:
        """Returns when the call has ended, or a signal has come."""
        while True:
            # Without a time, a signal that comes just before the wait would not end it.
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=_LOOK_S)
                return

    def finish(self, close: Callable[[], object]) -> None:
        """Frees what the calls used: now, or when an abandoned call has ended."""
        if self.abandoned:
            self._calls.put((close, Future()))
        else:
            close()
        self._calls.put(None)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        self._woken.put(None)
        self._stop()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            work, answer = call
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001  # it is raised where the call was made
                answer.set_exception(error)
