"""Ctrl-C ends what runs beside the main thread, also when that does not listen."""

from __future__ import annotations

import signal
import threading
from threading import Event

import pytest

from magnetar.cli.sql.interruptible import Interruptible


def interrupt_main() -> None:
    """What a terminal does for Ctrl-C; handlers run in the main thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_results_and_errors_are_those_of_the_work() -> None:
    closed = Event()
    with Interruptible(lambda: None) as beside:
        assert beside.call(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            beside.call(lambda: 1 // 0)
        assert beside.call(lambda: 8) == 8
    beside.finish(closed.set)
    assert closed.is_set()
    assert not beside.abandoned


def test_work_that_listens_ends_and_is_closed_at_once() -> None:
    stopped, closed = Event(), Event()

    def listening() -> None:
        interrupt_main()
        assert stopped.wait(30)

    with Interruptible(stopped.set, patience_s=30) as beside, pytest.raises(KeyboardInterrupt):
        beside.call(listening)
    beside.finish(closed.set)
    assert closed.is_set()
    assert not beside.abandoned


def test_work_that_does_not_listen_is_abandoned_and_closed_when_it_ends() -> None:
    go_on, closed = Event(), Event()

    def deaf() -> None:
        interrupt_main()
        assert go_on.wait(30)

    with Interruptible(lambda: None, patience_s=0.01) as beside, pytest.raises(KeyboardInterrupt):
        beside.call(deaf)
    beside.finish(closed.set)
    assert beside.abandoned
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(30)


def test_a_signal_between_two_calls_is_not_lost() -> None:
    with Interruptible(lambda: None) as beside:
        assert beside.call(lambda: 7) == 7
        interrupt_main()
        with pytest.raises(KeyboardInterrupt):
            beside.call(lambda: 8)
    beside.finish(lambda: None)


def test_the_handler_of_before_is_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruptible(lambda: None) as beside:
        assert signal.getsignal(signal.SIGINT) != before
    beside.finish(lambda: None)
    assert signal.getsignal(signal.SIGINT) == before
