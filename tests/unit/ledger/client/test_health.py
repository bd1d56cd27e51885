from __future__ import annotations

from magnetar.ledger.client.health import BookieHealth, QuarantineOptions

MEMBERS = ("a", "b", "c")


def health(errors_max: int = 3) -> BookieHealth:
    return BookieHealth(QuarantineOptions(errors_max=errors_max, window_s=60.0, quarantine_s=100.0))


def test_who_is_unknown_keeps_its_place() -> None:
    assert health().order(MEMBERS, (1, 2, 0), 0.0) == (1, 2, 0)


def test_a_slow_bookie_is_read_from_last_and_a_little_difference_does_not_count() -> None:
    known = health()
    known.answered("a", 0.0101, 0.0)
    known.answered("b", 0.0100, 0.0)
    known.answered("c", 0.200, 0.0)
    assert known.order(MEMBERS, (2, 0, 1), 0.0) == (0, 1, 2)


def test_a_bookie_that_failed_is_read_from_last_until_it_answers() -> None:
    known = health()
    known.failed("a", 5.0)
    assert known.order(MEMBERS, (0, 1, 2), 6.0) == (1, 2, 0)
    assert known.order(MEMBERS, (0, 1, 2), 5.0 + BookieHealth.FAILED_FOR_S) == (0, 1, 2)
    known.answered("a", 0.0, 7.0)
    assert known.order(MEMBERS, (0, 1, 2), 6.0) == (0, 1, 2)


def test_many_failures_in_a_short_time_mean_quarantine() -> None:
    known = health()
    for now in (0.0, 50.0, 100.0, 155.0):
        known.failed("a", now)
    assert known.quarantined(155.0) == frozenset()
    known.failed("a", 156.0)
    assert known.quarantined(156.0) == {"a"}
    assert known.quarantined(255.9) == {"a"}
    assert known.quarantined(256.0) == frozenset()


def test_who_took_no_entry_is_asked_again_after_a_restart_or_a_while() -> None:
    known = health()
    assert known.may_take("a", 0.0, 0.0)
    known.refused("a", 5.0)
    known.answered("a", 0.0, 7.0)
    assert not known.may_take("a", 1.0, 5.0), "the connection is that of before"
    assert known.may_take("a", 5.1, 5.2)
    assert not known.may_take("a", 1.0, 4.9 + BookieHealth.FAILED_FOR_S)
    assert known.may_take("a", 1.0, 5.0 + BookieHealth.FAILED_FOR_S)


def test_slow_answers_count_as_failures() -> None:
    known = BookieHealth(QuarantineOptions(errors_max=3, slow_s=2.0, window_s=60.0, quarantine_s=100.0))
    known.answered("a", 1.9, 0.0)
    known.answered("a", 2.0, 1.0)
    assert known.order(MEMBERS, (0, 1, 2), 1.0) == (1, 2, 0)
    known.added("a", 5.0, 2.0)
    known.added("a", 0.1, 3.0)
    assert known.quarantined(3.0) == frozenset()
    known.added("a", 2.5, 4.0)
    assert known.quarantined(4.0) == {"a"}
