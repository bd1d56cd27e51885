"""When an audit is due."""

from __future__ import annotations

from magnetar.ledger.autorecovery.schedule import LOOK_AGAIN_S, AuditSchedule

ONE, TWO, NONE = frozenset({"a"}), frozenset({"a", "b"}), frozenset[str]()


def test_one_lost_bookie_is_waited_for() -> None:
    schedule = AuditSchedule(30)
    schedule.lost(ONE, 100)
    assert not schedule.take_due(129)
    schedule.lost(ONE, 120)
    assert schedule.due_s == 130
    assert schedule.take_due(130)
    assert not schedule.take_due(1000)
    # Nothing new was lost: it was looked after.
    schedule.lost(ONE, 1000)
    assert schedule.due_s is None


def test_one_that_returns_calls_the_audit_off() -> None:
    schedule = AuditSchedule(30)
    schedule.lost(ONE, 100)
    schedule.lost(NONE, 110)
    assert schedule.due_s is None
    schedule.lost(ONE, 120)
    assert schedule.due_s == 150


def test_two_are_not_waited_for() -> None:
    schedule = AuditSchedule(30)
    schedule.lost(ONE, 100)
    schedule.lost(TWO, 110)
    assert schedule.take_due(110)
    schedule.lost(TWO, 111)
    assert not schedule.take_due(999)


def test_without_a_delay_one_is_enough() -> None:
    schedule = AuditSchedule(0)
    schedule.lost(ONE, 100)
    assert schedule.take_due(100)


def test_setting_the_delay_again_asks_for_an_audit() -> None:
    schedule = AuditSchedule(30)
    schedule.delay_set(30, 100)
    assert schedule.take_due(100)
    schedule.lost(ONE, 200)
    schedule.delay_set(50, 210)
    assert schedule.due_s == 260
    schedule.delay_set(0, 220)
    assert schedule.take_due(220)
    schedule.delay_set(60, 230)
    assert schedule.due_s is None


def test_one_that_failed_is_tried_again() -> None:
    schedule = AuditSchedule(0)
    schedule.lost(ONE, 1)
    assert schedule.take_due(1)
    schedule.failed(5)
    assert not schedule.take_due(4)
    assert schedule.take_due(5)


def _audited(schedule: AuditSchedule, now_s: float) -> None:
    assert schedule.take_due(now_s)
    schedule.done(now_s)


def test_who_is_lost_is_looked_after_twice() -> None:
    schedule = AuditSchedule(0)
    schedule.lost(ONE, 100)
    _audited(schedule, 100)
    schedule.lost(ONE, 110)
    assert schedule.due_s == 100 + LOOK_AGAIN_S
    assert not schedule.take_due(99 + LOOK_AGAIN_S)
    _audited(schedule, 100 + LOOK_AGAIN_S)
    assert schedule.due_s is None


def test_a_second_look_that_failed_is_tried_again() -> None:
    schedule = AuditSchedule(0)
    schedule.lost(ONE, 100)
    _audited(schedule, 100)
    assert schedule.take_due(200)
    schedule.failed(201)
    assert schedule.take_due(201)


def test_an_audit_of_nobody_has_no_second_look() -> None:
    schedule = AuditSchedule(30)
    schedule.delay_set(30, 100)
    _audited(schedule, 100)
    assert schedule.due_s is None


def test_a_second_look_does_not_shorten_the_wait_for_another_bookie() -> None:
    schedule = AuditSchedule(300)
    schedule.lost(ONE, 0)
    _audited(schedule, 300)
    # The first one comes back as another one goes.
    schedule.lost(frozenset({"b"}), 310)
    assert schedule.due_s == 610
    assert not schedule.take_due(300 + LOOK_AGAIN_S)


def test_nobody_lost_needs_no_second_look() -> None:
    schedule = AuditSchedule(0)
    schedule.lost(ONE, 100)
    _audited(schedule, 100)
    schedule.lost(NONE, 110)
    assert schedule.due_s is None
    assert schedule.called_off == 0
