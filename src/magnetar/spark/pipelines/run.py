"""The parts of every run: settings, a log for the output of Spark, a summary and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.spark.pipelines.failures import explain

if TYPE_CHECKING:
    from magnetar.spark.progress import LagListener


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a run that a user can choose."""

    master: str = "local[*]"
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, by names such as `spark.x.y`."""
    connection: Mapping[str, str] = field(default_factory=dict)
    """Options of the source for a connection to the cluster; with them, lag is in seconds and bytes too."""
    metrics_file: Path | None = None
    metrics_port: int | None = None
    log_file: Path | None = None
    """File for the output of Spark; None: a file in the folder for temporary files."""
    show_traceback: bool = False
    quiet: bool = False
    """Print neither progress nor a summary."""


class PipelineRun:
    """One run, from start to summary. Its output goes to stderr."""

    def __init__(self, file: Path, settings: RunSettings) -> None:
        self.file = file
        self.settings = settings
        self.log_file = settings.log_file or _temporary_log(file)
        self._started_s = time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line for the user."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def listener(self) -> LagListener:
        """Returns a new listener that shows and counts the progress of queries."""
        from magnetar.spark.progress import LagListener

        return LagListener(
            connection=self.settings.connection or None,
            live=None if self.settings.quiet else sys.stderr,
            metrics_file=self.settings.metrics_file,
            metrics_port=self.settings.metrics_port,
        )

    def guarded(self, work: Callable[[], int], listener: Callable[[], LagListener | None]) -> int:
        """Runs `work` and returns its exit code, after it has printed errors and a summary of the queries.

        1 after an error, 130 when it was interrupted.
        """
        code = 1
        error: BaseException | None = None
        try:
            code = work()
        except SystemExit as ended:
            code = _code_of(ended, self.say)
        except KeyboardInterrupt:
            code = 130
        except Exception as failed:  # noqa: BLE001  # the program's own, whatever it is
            if _is_interrupt(failed):
                code = 130
            else:
                error = failed
        found = listener()
        if found is not None:
            found.close()
        if code == 130:
            self.say("Stopped.")
        if error is not None:
            self._tell(error)
        if not self.settings.quiet:
            self._sum_up(found, failed=error is not None or code not in (0, 130))
        return code

    def _tell(self, error: BaseException) -> None:
        for line in explain(error, self.file.resolve().parent, _sql_of(error)):
            self.say(line)
        if self.settings.show_traceback:
            self.say("".join(traceback.format_exception(error)))
        else:
            self.say(f"--traceback shows all of it; what Spark said is in {self.log_file}")

    def _sum_up(self, listener: LagListener | None, *, failed: bool) -> None:
        taken_s = time.monotonic() - self._started_s
        self.say(f"{self.file.name} {'failed' if failed else 'ended'} after {taken_s:.1f} s")
        for totals in [] if listener is None else listener.totals():
            for line in totals.lines():
                self.say(line)


def _sql_of(error: BaseException) -> str:
    """Spark's description of the place in a query; empty when the error has none."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return ""
    try:
        contexts = error.getQueryContext()
        return "\n".join(context.summary() for context in contexts)
    except Exception:  # noqa: BLE001  # the JVM may be gone; the message tells the rest
        return ""


def _is_interrupt(error: BaseException) -> bool:
    """Whether an interrupt caused the error.

    An interrupt during a call to the JVM breaks the connection, and the next call fails.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _code_of(ended: SystemExit, say: Callable[[str], None]) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    say(str(ended.code))
    return 1


def _temporary_log(file: Path) -> Path:
    handle, name = tempfile.mkstemp(prefix=f"magnetar-{file.stem}-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Programs that the body starts write their stderr to the file; stderr of this process stays.

    Spark's JVM, and the workers that it starts, say much there that the user need not see.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the body as Ctrl-C does: its queries stop in order."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
