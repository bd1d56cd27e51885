"""When a topic is compacted and what came of it: the states, and what is due."""

from __future__ import annotations

import pytest

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.machine import InvalidTransitionError
from magnetar.broker.compaction.job import THRESHOLD_POLICY, TRANSITIONS, CompactionJob, CompactionStatus
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import ConflictError
from support.tables import unreachable


def test_every_state_is_reached_and_left() -> None:
    assert unreachable(TRANSITIONS, CompactionStatus.NOT_RUN) == set()
    assert all(TRANSITIONS[state] for state in CompactionStatus)


def test_a_compaction_that_failed_keeps_the_result_before_it() -> None:
    job = CompactionJob("t")
    job.begin("t", 1_000.0)
    job.switched(Position(3, 7), removed=5)
    job.succeed(50, 1_250.0)
    job.check()
    assert (job.status, job.succeeded_ms, job.duration_ms) == (CompactionStatus.SUCCESS, 50, 250)
    job.begin("t", 2_000.0)
    job.fail("the disk is away", 60, 2_100.0)
    job.check()
    assert (job.status, job.error, job.failed_ms) == (CompactionStatus.ERROR, "the disk is away", 60)
    assert (job.horizon, job.removed_messages, job.succeeded_ms) == (Position(3, 7), 5, 50)
    job.begin("t", 3_000.0)
    job.succeed(70, 3_001.0)
    assert job.error == ""


def test_one_runs_at_a_time() -> None:
    job = CompactionJob("t")
    job.begin("orders", 0.0)
    with pytest.raises(ConflictError, match="compaction of orders is already in progress"):
        job.begin("orders", 0.0)
    job.succeed(1, 1.0)
    with pytest.raises(InvalidTransitionError):
        job.succeed(2, 2.0)


def test_what_was_compacted_never_goes_back() -> None:
    job = CompactionJob("t")
    job.loaded(Position(5, 0))
    with pytest.raises(AssertionError, match="lies before"):
        job.switched(Position(4, 9), removed=0)


@pytest.mark.parametrize(
    ("threshold", "new", "log_bytes", "entries", "due"),
    [
        (0, 100, 1_000_000, 100, False),  # only on demand
        (500, 0, 1_000_000, 100, False),  # nothing is new
        (500, 10, 1_000, 20, True),  # half of 1,000 bytes
        (501, 10, 1_000, 20, False),
        (1, 1, 0, 0, False),  # everything was trimmed
    ],
)
def test_enough_is_reckoned_by_the_share_of_new_entries(
    threshold: int, new: int, log_bytes: int, entries: int, *, due: bool
) -> None:
    job = CompactionJob("t")
    job.threshold_bytes = threshold
    assert job.is_due(new_entries=new, log_bytes=log_bytes, log_entries=entries) == due


def test_a_compaction_goes_up_to_the_last_entry_that_consumers_can_get() -> None:
    job = CompactionJob("t")
    assert job.horizon == EARLIEST
    assert job.next_horizon(None) is None
    assert job.next_horizon(Position(1, 4)) == Position(1, 4)
    job.loaded(Position(1, 4))
    assert job.next_horizon(Position(1, 4)) is None
    assert job.next_horizon(Position(0, 9)) is None


@pytest.mark.parametrize(
    ("own", "namespace", "expected"),
    [
        ({}, {}, 7),
        ({}, {THRESHOLD_POLICY: 8}, 8),
        ({THRESHOLD_POLICY: 9}, {THRESHOLD_POLICY: 8}, 9),
        ({THRESHOLD_POLICY: 0}, {THRESHOLD_POLICY: 8}, 0),
        ({}, {THRESHOLD_POLICY: None}, 0),
        ({THRESHOLD_POLICY: -1}, {}, 0),  # else it would always be due
    ],
)
def test_the_narrowest_threshold_wins(
    own: dict[str, object], namespace: dict[str, object], expected: int
) -> None:
    job = CompactionJob("t")
    job.apply(BrokerConfig(compaction_threshold_bytes=7), own, namespace)
    assert job.threshold_bytes == expected
