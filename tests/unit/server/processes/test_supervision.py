"""When broker processes are started, restarted and stopped: event, then effects."""

from __future__ import annotations

import random

import pytest

from magnetar.server.processes.supervision import (
    PAUSES_S,
    STEADY_S,
    Effect,
    Log,
    ProcessState,
    StartProcess,
    StopProcess,
    Supervision,
    Tell,
)


def acts(effects: list[Effect]) -> list[Effect]:
    """What is done, without what is said."""
    return [each for each in effects if not isinstance(each, Log)]


def serving(count: int) -> Supervision:
    supervision = Supervision(count)
    supervision.begin(0.0)
    for number in range(1, count + 1):
        supervision.ready(number)
    return supervision


def test_all_are_started_and_told_of_when_the_last_one_serves() -> None:
    supervision = Supervision(2)
    assert supervision.begin(0.0) == [StartProcess(1), StartProcess(2)]
    assert supervision.ready(2) == []
    assert supervision.ready(1) == [Tell()]


def test_a_process_that_dies_is_replaced_at_once_and_later_after_growing_pauses() -> None:
    supervision = serving(2)
    assert acts(supervision.ended(1, 1.0, -9)) == [StartProcess(1)]
    now_s = 1.0
    for pause_s in PAUSES_S[1:]:
        assert acts(supervision.ended(1, now_s, 1)) == []
        assert supervision.due_s() == now_s + pause_s
        assert supervision.passed(now_s + pause_s - 0.1) == []
        now_s += pause_s
        assert supervision.passed(now_s) == [StartProcess(1)]
    # The pauses grow no more.
    supervision.ended(1, now_s, 1)
    assert supervision.due_s() == now_s + PAUSES_S[-1]


def test_the_first_death_of_a_young_process_is_answered_at_once_and_a_steady_one_begins_anew() -> None:
    supervision = serving(1)
    assert acts(supervision.ended(1, 1.0, -9)) == [StartProcess(1)]
    assert acts(supervision.ended(1, 2.0, -9)) == []
    assert acts(supervision.passed(3.0)) == [StartProcess(1)]
    supervision.ready(1)
    assert acts(supervision.ended(1, 3.0 + STEADY_S, -9)) == [StartProcess(1)]


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (78, 78), (-9, 1)])
def test_a_process_that_never_served_at_the_start_stops_all(code: int, expected: int) -> None:
    supervision = Supervision(3)
    supervision.begin(0.0)
    supervision.ready(1)
    assert acts(supervision.ended(2, 1.0, code)) == [StopProcess(1, alone=False), StopProcess(3, alone=False)]
    supervision.ended(1, 2.0, 0)
    ended = [supervision.over]
    supervision.ended(3, 2.0, -15)
    assert [*ended, supervision.over] == [False, True]
    assert supervision.exit_code == expected


def test_a_rolling_restart_goes_on_when_the_successor_serves() -> None:
    supervision = serving(2)
    assert acts(supervision.restart()) == [StopProcess(1, alone=True)]
    assert acts(supervision.ended(1, 5.0, 0)) == [StartProcess(1)]
    assert acts(supervision.ready(1)) == [StopProcess(2, alone=True)]
    assert acts(supervision.ended(2, 6.0, 0)) == [StartProcess(2)]
    assert acts(supervision.ready(2)) == []
    assert supervision.state(1) is supervision.state(2) is ProcessState.SERVING


def test_a_rolling_restart_waits_for_a_process_that_is_away() -> None:
    supervision = serving(3)
    supervision.ended(3, 1.0, -9)
    assert acts(supervision.restart()) == []
    assert acts(supervision.ready(3)) == [StopProcess(1, alone=True)]
    supervision.ended(1, 2.0, 0)
    supervision.ended(2, 2.0, -9)
    # The successor serves, and yet the next one must not go: then one of three would be left.
    assert acts(supervision.ready(1)) == []
    assert acts(supervision.ready(2)) == [StopProcess(2, alone=True)]


def test_a_successor_that_does_not_start_holds_up_the_restart_and_stops_nothing() -> None:
    supervision = serving(2)
    supervision.restart()
    supervision.ended(1, 1.0, 0)
    assert acts(supervision.ended(1, 1.5, 1)) == [StartProcess(1)]
    assert acts(supervision.ended(1, 2.0, 1)) == []
    assert supervision.state(2) is ProcessState.SERVING
    assert supervision.passed(3.0) == [StartProcess(1)]
    assert acts(supervision.ready(1)) == [StopProcess(2, alone=True)]


def test_stopping_ends_a_rolling_restart_and_starts_nothing_more() -> None:
    supervision = serving(3)
    supervision.restart()
    assert supervision.stop() == [StopProcess(number, alone=False) for number in (1, 2, 3)]
    assert supervision.stop() == []
    for number in (1, 2, 3):
        assert acts(supervision.ended(number, 9.0, 0)) == []
    assert supervision.over
    assert supervision.exit_code == 0
    assert supervision.restart() == []


def test_a_process_that_waits_for_its_start_is_not_waited_for() -> None:
    supervision = serving(2)
    supervision.ended(1, 1.0, -9)
    supervision.ended(1, 1.5, -9)
    assert supervision.stop() == [StopProcess(2, alone=False)]
    assert supervision.due_s() is None
    supervision.ended(2, 2.0, 3)
    assert supervision.over
    assert supervision.exit_code == 3


def test_whatever_happens_never_two_are_stopped_at_once_and_all_come_back() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        supervision, now_s = serving(3), 0.0
        for _ in range(60):
            now_s += chance.choice((0.1, 1.0, 70.0))
            number = chance.randint(1, 3)
            state = supervision.state(number)
            match chance.randint(0, 3):
                case 0 if state is ProcessState.STARTING:
                    supervision.ready(number)
                case 1 if state is not ProcessState.AWAY:
                    supervision.ended(number, now_s, chance.choice((0, 1, -9)))
                case 2:
                    supervision.passed(now_s)
                case 3 if chance.random() < 0.2:
                    supervision.restart()
            supervision.check()
        for _ in range(20):
            now_s += PAUSES_S[-1]
            supervision.passed(now_s)
            for number in (1, 2, 3):
                if supervision.state(number) is ProcessState.STOPPING:
                    supervision.ended(number, now_s, 0)
                supervision.ready(number)
        assert {supervision.state(number) for number in (1, 2, 3)} == {ProcessState.SERVING}, seed
