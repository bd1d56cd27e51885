"""Pauses between attempts that fail."""

from __future__ import annotations

from magnetar.tiered.backoff import FIRST_MS, LONGEST_MS, Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff()
    assert not backoff.waits(0)
    pauses = [backoff.failed(0) for _ in range(20)]
    assert pauses[:3] == [FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS]
    assert pauses[-1] == LONGEST_MS
    backoff.succeeded()
    assert backoff.failed(0) == FIRST_MS


def test_a_pause_ends_after_its_time_or_when_the_clock_is_set() -> None:
    backoff = Backoff()
    backoff.failed(1_000_000_000)
    assert backoff.waits(1_000_000_000)
    assert backoff.waits(1_000_000_000 + FIRST_MS - 1)
    assert not backoff.waits(1_000_000_000 + FIRST_MS)
    assert not backoff.waits(1_000_000_000 - 86_400_000)
