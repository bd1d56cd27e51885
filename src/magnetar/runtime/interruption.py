"""A limit to the time that foreign code has the event loop, in the main thread (driver).

Python ends no thread, but a signal interrupts the main one: its handler raises. The timer goes off again and
again until the code has ended, so that code that swallows the error does not go on for ever. A single call
that takes long within a library written in C is interrupted when it returns, or when it looks for signals,
as `re` does.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from magnetar.base.errors import MagnetarError

_T = TypeVar("_T")


class TookTooLongError(MagnetarError):
    """The work was interrupted."""


class _InterruptedError(BaseException):
    """No Exception: what is interrupted must not handle it as one of its own."""


_runs = False
"""Whether interruptible work is under way."""
_until_s = 0.0
"""End of its time, by the clock that only runs."""


def _interrupt(_number: int, frame: FrameType | None) -> None:
    # A signal of earlier work may come late, on a busy machine and to another thread.
    if time.monotonic() < _until_s:
        return
    # Where the work is called, or was, nothing is interrupted: an error between its end and the end of the
    # timer would leave the timer, which would then interrupt what comes later.
    if _runs and frame is not None and frame.f_code is not interruptible.__code__:
        raise _InterruptedError


def interruptible(seconds: float, work: Callable[[], _T]) -> _T:
    """Runs `work`, a function of Python, for at most so many seconds of the clock. Raises TookTooLongError
    beyond it.

    Only the main thread can be interrupted; in others there is no limit. Must not be nested.
    """
    global _runs, _until_s
    if threading.current_thread() is not threading.main_thread():
        return work()
    assert not _runs, "interruptible work within interruptible work"
    if signal.getsignal(signal.SIGALRM) is not _interrupt:
        # It stays: a signal that comes late would end a process that has no handler any more.
        signal.signal(signal.SIGALRM, _interrupt)
    _until_s = time.monotonic() + seconds
    try:
        _runs = True
        # In C, without a frame of its own, as are the calls below while `_runs`.
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
        return work()
    except _InterruptedError as error:
        _runs = False
        raise TookTooLongError(f"it took more than {seconds:g} s") from error
    finally:
        _runs = False
        signal.setitimer(signal.ITIMER_REAL, 0)
