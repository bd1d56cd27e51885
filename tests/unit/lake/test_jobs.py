"""Jobs on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.lake.jobs import JobRunningError, Jobs, JobStatus
from magnetar.lake.lake_values import LakeError


class Spawned:
    """Background work that runs when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[Any, Any, None]] = []

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        self.waiting.append(work)

    def run(self) -> None:
        while self.waiting:
            asyncio.run(self.waiting.pop(0))


def test_a_job_and_its_end() -> None:
    spawned = Spawned()
    jobs = Jobs(spawned)
    assert jobs.of("t", "verify").status is JobStatus.NOT_RUN

    async def work(at: Callable[[int, int], None]) -> str:
        at(3, 4)
        return "found"

    jobs.start("t", "verify", work)
    assert jobs.of("t", "verify").status is JobStatus.RUNNING
    with pytest.raises(JobRunningError):
        jobs.start("t", "verify", work)
    spawned.run()
    job = jobs.of("t", "verify")
    assert (job.status, job.result, job.done, job.total) == (JobStatus.SUCCESS, "found", 3, 4)
    jobs.start("t", "verify", work)
    spawned.run()


def test_a_job_that_fails_says_why() -> None:
    spawned = Spawned()
    jobs = Jobs(spawned)

    async def work(at: Callable[[int, int], None]) -> None:
        raise LakeError("the catalog is away")

    jobs.start("t", "maintain", work)
    spawned.run()
    assert jobs.of("t", "maintain").error == "the catalog is away"
    assert jobs.of("t", "maintain").status is JobStatus.ERROR


def test_old_results_are_forgotten() -> None:
    spawned = Spawned()
    jobs = Jobs(spawned)

    async def work(at: Callable[[int, int], None]) -> None:
        del at

    for number in range(300):
        jobs.start(f"t{number}", "verify", work)
        spawned.run()
    assert jobs.of("t0", "verify").status is JobStatus.NOT_RUN
    assert jobs.of("t299", "verify").status is JobStatus.SUCCESS


def test_a_job_with_an_error_that_nobody_expected_says_it() -> None:
    """It said that the broker stopped."""
    spawned = Spawned()
    jobs = Jobs(spawned)

    async def work(at: Callable[[int, int], None]) -> None:
        raise ValueError("nobody expected this")

    jobs.start("t", "maintain", work)
    with pytest.raises(ValueError, match="nobody expected this"):
        spawned.run()
    assert jobs.of("t", "maintain").status is JobStatus.ERROR
    assert "nobody expected this" in jobs.of("t", "maintain").error
