"""A listener for streaming queries: lag by topic, a live line, metrics, totals.

    spark.streams.addListener(LagListener())

Works in Classic and in Connect sessions; in the latter it runs in the client, where Spark sends its events.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from magnetar.spark.connection_options import SHARED_OPTIONS, connection_options
from magnetar.spark.option_values import OptionValues
from magnetar.spark.progress.endpoints import MetricsServer, write_metrics
from magnetar.spark.progress.exposition import exposition
from magnetar.spark.progress.lag import SeenEnds, TopicLag, rows_behind
from magnetar.spark.progress.probe import LagProbe
from magnetar.spark.progress.report import ProgressReport, Totals

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("magnetar.spark.progress")

_PATIENCE: Final = {"connecttimeoutms": "3000", "requesttimeoutms": "5000", "retrytimeoutms": "3000"}
"""A broker that does not answer must not keep the listener from the next batch."""
LINE_EVERY_S: Final = 10.0
"""Seconds between two lines of a query, where the output is not a terminal."""
_CLEAR: Final = "\r\x1b[K"


class LagListener(StreamingQueryListener):
    """Receives the events of all queries of a session. Usually, a session has one such listener."""

    def __init__(
        self,
        *,
        connection: Mapping[str, str] | None = None,
        live: TextIO | None = None,
        metrics_file: str | Path | None = None,
        metrics_port: int | None = None,
        on_report: Callable[[ProgressReport], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            connection: the source's options that lead to the cluster, `service.url` and so on. With it,
                seconds are the age of the oldest unread message and bytes are known; without, seconds count
                from when its place was first seen and bytes are unknown.
            live: a terminal gets one line that is written over, anything else a line now and then.
            metrics_file: Prometheus text, replaced after each batch.
            metrics_port: GET /metrics on loopback; 0 chooses a port, see `port`.
            on_report: called after each batch, on Spark's thread.

        Raises OptionError for a wrong `connection`, OSError when the port is taken.
        """
        self._probe: LagProbe | None = None
        if connection:
            named = {name.lower(): value for name, value in connection.items()}
            given = OptionValues({**_PATIENCE, **named}, SHARED_OPTIONS)
            self._probe = LagProbe(connection_options(given))
        self._live = live
        self._metrics_file = Path(metrics_file) if metrics_file else None
        self._on_report = on_report
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = SeenEnds()
        self._totals: dict[str, Totals] = {}
        self._shown_s: dict[str, float] = {}
        self._server = None if metrics_port is None else MetricsServer(metrics_port, self.metrics)
        self.port = None if self._server is None else self._server.port
        """Where the metrics are."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Notes that a query has started."""
        with self._lock:
            self._totals.setdefault(str(event.id), Totals(event.name or str(event.id)[:8]))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Reports a batch that has ended."""
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Does nothing: a query that waits for rows has read all."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Notes that a query has ended."""
        with self._lock:
            totals = self._totals.setdefault(str(event.id), Totals(str(event.id)[:8]))
            if event.exception:
                totals.error = event.exception.strip().splitlines()[0]
        self._export()

    def take(self, progress: Mapping[str, object]) -> ProgressReport:
        """Counts and reports one progress document, in the form that Spark prints."""
        report = ProgressReport.from_progress(progress)
        report = replace(report, lags=tuple(self._lags(report)))
        with self._lock:
            self._totals.setdefault(report.query_id, Totals(report.name)).add(report)
        self._export()
        self._show(report)
        if self._on_report is not None:
            self._on_report(report)
        return report

    def totals(self) -> list[Totals]:
        """Totals of all queries, in the order in which they began."""
        with self._lock:
            return list(self._totals.values())

    def metrics(self) -> str:
        """The current metrics as Prometheus text."""
        return exposition(self.totals())

    def close(self) -> None:
        """Ends the live line, the server and the connection. The listener can be removed before or after."""
        if self._live is not None and self._shown_s and self._live.isatty():
            self._live.write("\n")
            self._live.flush()
        if self._server is not None:
            self._server.close()
        if self._probe is not None:
            self._probe.close()

    def _lags(self, report: ProgressReport) -> list[TopicLag]:
        if self._probe is not None:
            return self._probe.lags(report.reaches)
        now_s = self._clock()
        seconds: dict[str, float] = {}
        for topic, reach in report.reaches.items():
            self._seen.note(topic, reach.end, now_s)
            base = str(topic.base)
            age = self._seen.seconds(topic, reach.read, now_s)
            seconds[base] = max(seconds.get(base, 0.0), age)
        return [TopicLag(topic, rows, seconds[topic]) for topic, rows in rows_behind(report.reaches).items()]

    def _export(self) -> None:
        if self._metrics_file is None:
            return
        try:
            write_metrics(self._metrics_file, self.metrics())
        except OSError as error:
            # The query goes on; the next batch tries again.
            _log.warning("metrics are not written: %s", error)

    def _show(self, report: ProgressReport) -> None:
        live = self._live
        if live is None:
            return
        now_s = self._clock()
        if live.isatty():
            live.write(_CLEAR + report.line()[: shutil.get_terminal_size().columns - 1])
        elif now_s - self._shown_s.get(report.query_id, float("-inf")) < LINE_EVERY_S:
            return
        else:
            live.write(report.line() + "\n")
        self._shown_s[report.query_id] = now_s
        live.flush()
