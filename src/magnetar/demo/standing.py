"""Standing queries, which are started again when a Python worker did not start in time.

A query that continues from its checkpoint neither loses nor repeats rows, so a restart only delays it. All
other failures of a query are errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, cast

from magnetar.spark.pipelines.failures import is_worker_missing

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

RESTARTS_MAX: Final = 5
"""Restarts of all queries together; a machine that needs more of them is too busy for the tour."""


class DemoStanding(Protocol):
    """The used part of Spark's `StreamingQuery`."""

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]: ...  # noqa: N802  # Spark's name

    @property
    def lastProgress(self) -> object: ...  # noqa: N802  # Spark's name

    def exception(self) -> Exception | None: ...

    def processAllAvailable(self) -> None: ...  # noqa: N802  # Spark's name

    def stop(self) -> None: ...


class StandingQueries:
    """Queries by name. May be used from several threads."""

    def __init__(self) -> None:
        self._starts: dict[str, Callable[[], DemoStanding]] = {}
        self._queries: dict[str, DemoStanding] = {}
        self._ended: list[tuple[str, DemoStanding]] = []
        """Ended runs that were started again; their progress counts too."""
        self._lock = threading.Lock()
        self.restarts = 0

    def __len__(self) -> int:
        return len(self._queries)

    def start(self, name: str, start: Callable[[], DemoStanding]) -> None:
        """Starts a query; calls `start` again when a worker did not start in time."""
        self._starts[name] = start
        self._queries[name] = start()

    def drain(self, names: Iterable[str] = ()) -> None:
        """Returns when these queries, or all, have worked through everything that is published now.

        Raises Spark's `StreamingQueryException` when one of them has failed.
        """
        for name in list(names) or list(self._queries):
            while True:
                query = self._queries[name]
                try:
                    query.processAllAvailable()
                    break
                except Exception:  # an error of the JVM, raised again unless the query was restarted
                    if not self._replaced(name, query):
                        raise

    def failure(self) -> str | None:
        """The first line of what stopped a query for good, or None."""
        for name, query in list(self._queries.items()):
            error = query.exception()
            if error is not None and not self._replaced(name, query):
                return f"query {name!r} stopped: {str(error).strip().splitlines()[0]}"
        return None

    def _replaced(self, name: str, query: DemoStanding) -> bool:
        """Whether another run replaces the ended `query`; starts one when that is allowed."""
        with self._lock:
            if self._queries[name] is not query:
                return True
            error = query.exception()
            if error is None or not is_worker_missing(str(error)) or self.restarts == RESTARTS_MAX:
                return False
            self.restarts += 1
            self._ended.append((name, query))
            self._queries[name] = self._starts[name]()
            return True

    def last_progress(self, name: str) -> StreamingQueryProgress | None:
        """Spark's report on the newest batch; None before the first."""
        return cast("StreamingQueryProgress | None", self._queries[name].lastProgress)

    def progress(self, name: str = "") -> list[StreamingQueryProgress]:
        """Spark's reports on all batches, of one query or of all."""
        runs = [*self._ended, *self._queries.items()]
        return [report for each, query in runs if name in ("", each) for report in query.recentProgress]

    def stop(self) -> None:
        """Stops the queries, but not the session."""
        for query in self._queries.values():
            query.stop()
