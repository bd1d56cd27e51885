"""Pauses between starts, reasons, and stacks."""

from __future__ import annotations

from magnetar.functions.workers.restarts import PAUSE_S_MAX, STEADY_S, Restarts, users_stack, why


def test_pauses_grow_and_begin_anew_after_a_steady_run() -> None:
    restarts = Restarts()
    assert [round(restarts.ended(1, "e"), 1) for _ in range(3)] == [0.1, 0.2, 0.4]
    assert max(restarts.ended(1, "e") for _ in range(20)) == PAUSE_S_MAX
    assert restarts.ended(STEADY_S, "e") == 0.1
    assert (restarts.count, restarts.error) == (24, "e")


def test_the_reason_is_what_the_process_said_itself() -> None:
    assert why(1, "no module named x", "noise") == "no module named x"
    assert why(-9, "", "last words") == "the process was ended by signal 9\nlast words"
    assert why(3, "", "") == "the process ended with code 3"


def test_a_stack_shows_the_users_frames() -> None:
    told = (
        'Thread 0x1 (most recent call first):\n  File "/p/magnetar/functions/a.py", line 1 in _keep\n'
        'Current thread 0x2 (most recent call first):\n  File "/home/user/work.py", line 7 in stuck\n'
        '  File "/p/magnetar/functions/instance/calling.py", line 1 in rows\n'
    )
    assert users_stack(told) == 'File "/home/user/work.py", line 7 in stuck'
