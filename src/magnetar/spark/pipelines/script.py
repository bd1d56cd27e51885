"""Runs a PySpark program in this process, in a session that is ready for it."""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger

from magnetar.spark.pipelines.failures import is_worker_missing
from magnetar.spark.pipelines.run import PipelineRun, RunSettings, stderr_to, terminated_as_interrupted
from magnetar.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from magnetar.spark.progress import LagListener

_POLL_S: Final = 1
"""Seconds between two checks whether a query is still active; a signal ends the wait at once."""
RETRIES_MAX: Final = 2
"""Retries of a program when a worker could not connect before its first job."""


def run_script(file: Path, arguments: Sequence[str], settings: RunSettings) -> int:
    """Runs `file` with these arguments until it and its queries have ended.

    Returns the exit code: 0, what the program exits with, 1 after an error, 130 when it was interrupted.
    Raises NoJavaError.
    """
    run = PipelineRun(file, settings)
    with terminated_as_interrupted():
        with stderr_to(run.log_file):
            spark = session(file.stem, master=settings.master, config=settings.config)
        _quiet_echoes()
        listener = run.listener()
        spark.streams.addListener(listener)
        if not settings.quiet:
            run.say(f"{file.name} on {spark.sparkContext.master}, Spark {spark.version}")
        try:

            def attempt() -> int:
                return _execute(spark, file, arguments)

            return run.guarded(
                lambda: unless_begun(attempt, lambda: _has_begun(spark), run.say),
                lambda: _heard(spark, listener, run),
            )
        finally:
            spark.stop()


def unless_begun(work: Callable[[], int], has_begun: Callable[[], bool], say: Callable[[str], None]) -> int:
    """Returns the result of `work`, and repeats it when a worker could not connect before the first job."""
    for _ in range(RETRIES_MAX):
        try:
            return work()
        except Exception as error:
            if not is_worker_missing(str(error)) or has_begun():
                raise
            say(
                "A Python worker of Spark did not start in time. No job had begun: the program is started "
                "again."
            )
    return work()


def _has_begun(spark: SparkSession) -> bool:
    """Whether a job of the program has begun. Then a repetition could do its work twice."""
    context = spark.sparkContext._jsc
    # Each batch of a query is a job. A query that stops before its first batch starts at the same place
    # again.
    return context is None or context.sc().dagScheduler().numTotalJobs() > 0


def _quiet_echoes() -> None:
    """Silences logs of Spark that repeat an error that is raised, and of py4j about interrupted calls."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # py4j has its own logger, but logs to the root logger too.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def _execute(spark: SparkSession, file: Path, arguments: Sequence[str]) -> int:
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        runpy.run_path(str(file), run_name="__main__")
        _await_queries(spark)
    except BaseException:
        _stop_queries(spark)
        raise
    return 0


def _stop_queries(spark: SparkSession) -> None:
    """Stops all active queries.

    An interrupt breaks the connection to the JVM, so that the first call may fail; a second one works.
    """
    for _ in range(2):
        with suppress(Py4JError):  # the second call works
            if _is_running(spark):
                for query in spark.streams.active:
                    query.stop()
            return


def _await_queries(spark: SparkSession) -> None:
    """Returns when no query is active. Raises StreamingQueryException when a query fails."""
    while _is_running(spark) and (active := spark.streams.active):
        for query in active:
            query.awaitTermination(_POLL_S)


def _is_running(spark: SparkSession) -> bool:
    """Whether the session still runs: the program can stop it."""
    return spark.sparkContext._jsc is not None


def _heard(spark: SparkSession, listener: LagListener, run: PipelineRun) -> LagListener:
    """Returns the listener after it has received all events, which arrive late and on another thread."""
    with suppress(Py4JError):  # the JVM has gone, and the events with it
        if _is_running(spark):
            spark.streams.removeListener(listener)
    return listener
