"""Queries that are started again, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.demo.standing import RESTARTS_MAX, StandingQueries

SLOW = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back.\nmore"


class Query:
    """A query that ends with an error, or stands."""

    def __init__(self, error: str, reports: list[int]) -> None:
        self._error = RuntimeError(error) if error else None
        self.recentProgress: list[Any] = reports
        self.lastProgress = reports[-1] if reports else None
        self.stopped = False

    def exception(self) -> Exception | None:
        return self._error

    def processAllAvailable(self) -> None:  # Spark's name
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self.stopped = True


def started(*errors: str) -> StandingQueries:
    """One query that ends with these errors, run by run, and then stands."""
    runs = iter([*errors, ""])
    queries = StandingQueries()
    numbers = iter(range(100))
    queries.start("delays", lambda: Query(next(runs), [next(numbers)]))
    return queries


def test_a_query_whose_worker_was_late_is_started_again_and_its_progress_counts() -> None:
    queries = started(SLOW, SLOW)
    assert queries.failure() is None
    queries.drain(["delays"])
    assert queries.failure() is None
    assert queries.restarts == 2
    assert queries.progress("delays") == queries.progress() == [0, 1, 2]
    assert queries.last_progress("delays") == 2


def test_other_errors_are_errors() -> None:
    queries = started("no such table\nstack")
    assert queries.failure() == "query 'delays' stopped: no such table"
    with pytest.raises(RuntimeError, match="no such table"):
        queries.drain()
    assert queries.restarts == 0


def test_there_is_an_end_to_it() -> None:
    queries = started(*[SLOW] * (RESTARTS_MAX + 1))
    with pytest.raises(RuntimeError, match="failed to connect back"):
        queries.drain()
    assert queries.restarts == RESTARTS_MAX
    assert queries.failure() is not None
