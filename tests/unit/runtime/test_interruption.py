"""Work in the main thread that takes too long."""

from __future__ import annotations

import contextlib
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from magnetar.runtime.interruption import TookTooLongError, interruptible


def for_ever() -> None:
    while True:
        pass


def swallowing() -> None:
    """As foreign code may be, which wants to go on whatever happens."""
    for _ in range(3):
        with contextlib.suppress(BaseException):
            for_ever()


@pytest.mark.parametrize(
    "work",
    [for_ever, swallowing, lambda: re.match(r"(a+)+$", "a" * 40 + "b")],
    ids=["computing", "swallowing", "a pattern that backtracks"],
)
def test_it_is_interrupted_and_leaves_nothing(work: object) -> None:
    assert callable(work)
    if work is swallowing:
        with contextlib.suppress(TookTooLongError):
            interruptible(0.005, work)
    else:
        with pytest.raises(TookTooLongError):
            interruptible(0.005, work)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_signal_that_comes_late_ends_neither_the_process_nor_other_work() -> None:
    """One of earlier work, which the kernel gives to another thread when that gets a processor."""
    with pytest.raises(TookTooLongError):
        interruptible(0.001, for_ever)
    signal.raise_signal(signal.SIGALRM)

    def late() -> int:
        signal.raise_signal(signal.SIGALRM)
        return 7

    assert interruptible(60.0, late) == 7


def test_what_is_done_in_time_is_returned_or_raised() -> None:
    assert interruptible(60.0, lambda: 7) == 7
    with pytest.raises(KeyError):
        interruptible(60.0, lambda: dict[str, int]()["x"])
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_there_is_no_limit_in_other_threads() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(interruptible, 1e-6, lambda: sum(range(10_000))).result() == 49_995_000


def test_signals_that_come_close_together_interrupt_the_work_alone() -> None:
    """Again and again in the few instructions between the work's end and the timer's."""
    for _ in range(300):
        with pytest.raises(TookTooLongError):
            interruptible(30e-6, for_ever)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
