"""The last request to offload a log."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.base.machine import InvalidTransitionError
from magnetar.tiered.request import TRANSITIONS, OffloadRequest, OffloadRunningError, OffloadStatus
from support.tables import unreachable


def test_every_state_is_reached_and_left() -> None:
    assert unreachable(TRANSITIONS, OffloadStatus.NOT_RUN) == set()
    assert all(TRANSITIONS[state] for state in OffloadStatus)


def test_one_runs_at_a_time_and_the_next_forgets_it() -> None:
    request = OffloadRequest("t")
    request.begin()
    with pytest.raises(OffloadRunningError, match="log t is being offloaded"):
        request.begin()
    request.fail("the store is away")
    request.check()
    assert (request.status, request.error) == (OffloadStatus.ERROR, "the store is away")
    request.begin()
    request.check()
    assert request.error == ""
    request.succeed(Position(7, 0))
    request.check()
    assert (request.status, request.first_not_offloaded) == (OffloadStatus.SUCCESS, Position(7, 0))
    request.begin()
    assert request.first_not_offloaded is None


def test_what_does_not_run_does_not_end() -> None:
    with pytest.raises(InvalidTransitionError):
        OffloadRequest("t").succeed(Position(7, 0))
