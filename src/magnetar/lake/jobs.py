"""Requested checks and upkeep: one at a time for each table, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.base.errors import MagnetarError

KEPT_MAX: Final = 256
"""Most finished jobs whose result is kept."""


class JobStatus(Enum):
    """Status of a job, by the names of Pulsar's long running processes."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class JobRunningError(MagnetarError):
    """A job of the same kind is under way for this table."""


@dataclass(slots=True)
class Job:
    """One job with its progress and result."""

    status: JobStatus = JobStatus.NOT_RUN
    done: int = 0
    total: int = 0
    result: object = None
    error: str = ""


Work = Callable[[Callable[[int, int], None]], Awaitable[object]]
"""The work of a job: gets a callback for its progress (done, total), and returns the result."""


class Jobs:
    """The running and the finished jobs, by table and kind."""

    def __init__(self, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        """`spawn` runs background work."""
        self._spawn = spawn
        self._jobs: dict[tuple[str, str], Job] = {}

    def start(self, table: str, kind: str, work: Work) -> None:
        """Starts a job in the background. Raises JobRunningError while one of the same kind runs."""
        known = self._jobs.pop((table, kind), None)
        if known is not None and known.status is JobStatus.RUNNING:
            self._jobs[table, kind] = known
            raise JobRunningError(f"{kind} of {table} is under way")
        job = self._jobs[table, kind] = Job(JobStatus.RUNNING)
        if len(self._jobs) > KEPT_MAX:
            ended = [key for key, each in self._jobs.items() if each.status is not JobStatus.RUNNING]
            for key in ended[: len(self._jobs) - KEPT_MAX]:
                del self._jobs[key]
        self._spawn(self._run(job, work))

    async def _run(self, job: Job, work: Work) -> None:
        def at(done: int, total: int) -> None:
            job.done, job.total = done, total

        try:
            job.result = await work(at)
        except MagnetarError as error:
            job.status, job.error = JobStatus.ERROR, str(error)
        except asyncio.CancelledError:
            job.status, job.error = JobStatus.ERROR, "the broker stopped"
            raise
        except BaseException as error:
            job.status, job.error = JobStatus.ERROR, f"{error!r}: the broker's log says more"
            raise
        else:
            job.status = JobStatus.SUCCESS

    def of(self, table: str, kind: str) -> Job:
        """The last job of this kind since the process started."""
        return self._jobs.get((table, kind)) or Job()
