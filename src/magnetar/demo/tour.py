"""The plot: start everything, replay, stream, share alerts, run the batch, compare.

`Tour.run` tells it from start to end in one thread. `Tour.refresh` may be called from another thread at any
time to show where it stands; `Tour.close` ends whatever is running, in whatever state.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from magnetar.demo import independent
from magnetar.demo.alerts import Dispatchers, judge
from magnetar.demo.broker_process import BrokerProcess
from magnetar.demo.compare import Comparison
from magnetar.demo.data import Dataset, load
from magnetar.demo.display import Display, DisplayLine
from magnetar.demo.engine import BatchOutcome, Engine, start_session
from magnetar.demo.errors import DemoError
from magnetar.demo.events import DEPARTURES, WEATHER
from magnetar.demo.replay import Replay
from magnetar.demo.report import Summary, draw_chart
from magnetar.demo.scenario import DAY_MS, Scenario
from magnetar.demo.script import Script, write_script
from magnetar.demo.topics import DemoCluster
from magnetar.demo.verdict import Evidence, failures
from magnetar.runtime.threads import pool

_QUICK_MONTH = 1
_ALERTS_QUIET_S = 10.0


class StoppedError(DemoError):
    """The user ended the tour."""


class StreamFailedError(DemoError):
    """A standing query stopped; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    out: Path
    quick: bool
    scenario: Scenario
    consumers: int
    cluster: DemoCluster | None
    """An existing cluster to use, or None to start one."""

    @property
    def tick_ms(self) -> int:
        """Length of a tick on the replay's clock."""
        return DAY_MS if self.quick else 3 * DAY_MS

    @property
    def portion(self) -> int:
        """Events that the replay publishes for one micro-batch; without it the stream is one big gulp."""
        return 10_000 if self.quick else 70_000


@dataclass(frozen=True, slots=True)
class TourOutcome:
    """The end of the story."""

    summary: Summary
    comparisons: list[Comparison]
    results: pd.DataFrame
    """The independent table; equal to the others when `summary.agree`."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """The independent computation."""

    results: pd.DataFrame
    alerts: set[int]
    too_late: int


class Tour:
    """One run."""

    def __init__(self, options: Options, display: Display, stop: threading.Event) -> None:
        self._options = options
        self._display = display
        self._stop = stop
        self._pool = pool(2, "tour")
        self._lines: dict[str, DisplayLine] = {}
        self._broker: BrokerProcess | None = None
        self._session: Future[SparkSession] | None = None
        self._dispatchers: Dispatchers | None = None
        self._replay: Replay | None = None
        self._engine: Engine | None = None
        self._script: Script | None = None
        self._rows_read = 0
        self._failure: str | None = None
        self.cluster: DemoCluster | None = options.cluster

    # -- the plot -----------------------------------------------------------------------------------------

    def run(self) -> TourOutcome:
        """From nothing to the verdict. Raises `StoppedError`, or what went wrong."""
        began = time.perf_counter()
        options = self._options
        options.out.mkdir(parents=True, exist_ok=True)
        self._line("Broker", "starting")
        self._line("Spark", "starting the JVM")
        if options.cluster is None:
            self._broker = BrokerProcess(options.out)
        self._session = self._pool.submit(start_session, options.out)
        data, script = self._read_data()
        expectation = self._pool.submit(_expect, data, options.scenario)
        cluster, dispatchers = self._connect()
        engine = self._start_stream(cluster, data)
        stream_s = self._replay_into(cluster, engine, script)
        expected = expectation.result()
        self._await_alerts(dispatchers, expected)
        chart = options.out / "delays.png"
        drawn = self._pool.submit(draw_chart, expected.results, dispatchers.seen, chart)
        batch, batch_s = self._run_batch(engine)
        self._line("Compare", "row by row")
        evidence = self._evidence(engine, script, dispatchers, expected, batch)
        comparisons = evidence.comparisons()
        failed = failures(evidence, comparisons)
        self._finish("Compare", f"[red]{len(failed)} checks failed[/]" if failed else _equal(evidence))
        engine.write_progress(options.out / "progress.jsonl")
        drawn.result()
        self._check()
        summary = self._summary(script, evidence, batch, failed)
        summary = replace(
            summary,
            stream_rows_per_s=round(script.unique / stream_s, 1),
            batch_s=round(batch_s, 2),
            duration_s=round(time.perf_counter() - began, 2),
            parquet=str(engine.parquet),
            chart=str(chart),
        )
        return TourOutcome(summary, comparisons, expected.results)

    def _evidence(
        self,
        engine: Engine,
        script: Script,
        dispatchers: Dispatchers,
        expected: _Expected,
        batch: BatchOutcome,
    ) -> Evidence:
        """Everything that the three computations and the alerts' consumers brought to light."""
        assert self._replay is not None
        state = self._replay.state
        return Evidence(
            independent=expected.results,
            batch=batch,
            stream=engine.stream_results(),
            parquet=engine.parquet_results(),
            alerts=judge(dispatchers.seen, expected.alerts),
            alerts_expected=expected.alerts,
            departures=script.events_of(DEPARTURES),
            observations=script.events_of(WEATHER),
            retried=state.retried,
            refused=state.refused,
            too_late=expected.too_late,
            dropped_by_watermark=engine.dropped_by_watermark(),
        )

    def _summary(self, script: Script, evidence: Evidence, batch: BatchOutcome, failed: list[str]) -> Summary:
        """What was counted; times and places are the caller's."""
        assert self._replay is not None
        state = self._replay.state
        return Summary(
            rows={
                "stream": len(evidence.stream),
                "batch": len(batch.results),
                "independent": len(evidence.independent),
                "parquet": len(evidence.parquet),
            },
            agree=not failed,
            failures=failed,
            published=script.unique,
            duplicates_sent=state.retried,
            duplicates_removed=evidence.duplicates_removed,
            late_rows=script.late,
            dead_letters=batch.dead_letters_stored,
            dropped_by_watermark=evidence.dropped_by_watermark,
            lost=evidence.lost,
            alerts={
                "expected": len(evidence.alerts_expected),
                "received": evidence.alerts.received,
                "in_order": not evidence.alerts.disordered,
                "per_consumer": evidence.alerts.per_consumer,
            },
            publish_msgs_per_s=round(state.rate, 1),
            stream_rows_per_s=0.0,
            batch_s=0.0,
            broker_cpu_s=self._broker.cpu_s() if self._broker else None,
            duration_s=0.0,
            quick=self._options.quick,
            out=str(self._options.out),
            parquet="",
            chart="",
        )

    def _read_data(self) -> tuple[Dataset, Script]:
        self._line("Events", "reading the flights of 2013")
        data = load(_QUICK_MONTH if self._options.quick else None)
        script = self._script = write_script(data, self._options.scenario, tick_ms=self._options.tick_ms)
        self._check()
        self._finish("Events", f"{script.unique:,} events, {script.late:,} late, {script.retried:,} retried")
        return data, script

    def _connect(self) -> tuple[DemoCluster, Dispatchers]:
        if self._broker is not None:
            self.cluster = self._broker.wait_ready(self._stop)
        cluster = self.cluster
        assert cluster is not None
        cluster.prepare()
        self._finish("Broker", f"{cluster.broker_url}  {cluster.http_url}")
        self._dispatchers = Dispatchers(cluster, self._options.consumers)
        return cluster, self._dispatchers

    def _start_stream(self, cluster: DemoCluster, data: Dataset) -> Engine:
        assert self._session is not None
        spark = self._session.result()
        self._check()
        engine = Engine(spark, cluster, data, self._options.scenario, self._options.out)
        engine.start_queries()
        self._engine = engine
        self._check()
        self._finish("Spark", f"{spark.version}, {len(engine.queries)} standing queries")
        return engine

    def _replay_into(self, cluster: DemoCluster, engine: Engine, script: Script) -> float:
        """Publish everything while the stream runs; seconds from first event to last closed window."""
        began = time.perf_counter()
        replay = self._replay = Replay(cluster, script)
        self._line("Replay", "", total=script.unique)
        self._line("Stream", "", total=script.unique)
        self._line("Alerts", "")

        def too_far_ahead() -> bool:
            if self._failure is not None:
                raise StreamFailedError(self._failure)
            # While the stream works on one portion, the next is published; so it never waits for input.
            return replay.state.sent > self._options.portion * (engine.batches_started() + 1)

        replay.run(self._stop, wait=too_far_ahead)
        self._check()
        state = replay.state
        self._finish(
            "Replay",
            f"{state.sent:,} messages at {state.rate:,.0f}/s; {state.refused:,} of {state.retried:,} retries "
            "refused",
        )
        for _ in range(2):
            # Only after the query has taken in the first ones do the second ones close the last windows.
            replay.publish_closing_events()
            engine.drain("delays")
            self._check()
        engine.drain()
        self._check()
        took_s = time.perf_counter() - began
        self._finish(
            "Stream",
            f"{script.unique / took_s:,.0f} events/s through join, windows, topic and Parquet; "
            f"{engine.dropped_by_watermark()} dropped",
        )
        return took_s

    def _await_alerts(self, dispatchers: Dispatchers, expected: _Expected) -> None:
        dispatchers.wait_for(len(expected.alerts), self._stop, quiet_s=_ALERTS_QUIET_S)
        self._check()
        if dispatchers.failure is not None:
            raise dispatchers.failure
        shares = " + ".join(f"{len(one.flight_ids):,}" for one in dispatchers.seen)
        self._finish("Alerts", f"{dispatchers.received:,} of {len(expected.alerts):,} by key to {shares}")

    def _run_batch(self, engine: Engine) -> tuple[BatchOutcome, float]:
        self._line("Batch", "the same pipeline over the same topics, from the beginning")
        began = time.perf_counter()
        batch = engine.run_batch()
        self._check()
        took_s = time.perf_counter() - began
        self._finish("Batch", f"{len(batch.results):,} rows in {took_s:.1f} s")
        return batch, took_s

    # -- the display --------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show where the parts stand. Cheap; meant to be called a few times a second."""
        replay, engine, script = self._replay, self._engine, self._script
        if replay is None or engine is None or script is None or "Stream" not in self._lines:
            return
        state = replay.state
        clock = pd.Timestamp(state.clock_ms, unit="ms").strftime("%d %b %Y")
        self._display.update(
            self._lines["Replay"],
            done=state.sent,
            note=f"{clock}  {state.rate:,.0f} msg/s  {state.refused:,} retries refused",
        )
        self._rows_read = engine.rows_read("delays")
        note = f"{self._rows_read:,} rows"
        watermark = engine.watermark()
        # Before the first event it only says that the windows are still all open.
        if watermark > pd.Timestamp(script.first_ms, unit="ms").isoformat():
            note += f"  windows closed until {watermark[:10]}"
        written = engine.rows_read("table")
        if written:
            note += f"  {written:,} in Parquet"
        self._display.update(self._lines["Stream"], done=min(self._rows_read, script.unique), note=note)
        if self._dispatchers is not None:
            shares = " + ".join(f"{len(one.flight_ids):,}" for one in self._dispatchers.seen)
            self._display.update(self._lines["Alerts"], note=f"{shares} by key")
        self._failure = engine.failure()

    def _line(self, name: str, note: str, *, total: int | None = None) -> None:
        self._lines[name] = self._display.line(name, total=total, note=note)

    def _finish(self, name: str, note: str) -> None:
        self._display.finish(self._lines[name], note)

    def _check(self) -> None:
        if self._stop.is_set():
            raise StoppedError

    # -- the end ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End consumers, queries, Spark and broker, in this order, so that nothing loses its peer first."""
        self._stop.set()
        if self._dispatchers is not None:
            self._dispatchers.close()
        if self._replay is not None:
            self._replay.close()
        if self._session is not None and not self._session.cancel():
            spark = self._session.result()
            spark.sparkContext.setLogLevel("OFF")
            if self._engine is not None:
                self._engine.stop_queries()
            spark.stop()
        self._pool.shutdown()
        if self._broker is not None:
            self._broker.stop()


def _equal(evidence: Evidence) -> str:
    tables = (
        ("stream", evidence.stream),
        ("batch", evidence.batch.results),
        ("independent", evidence.independent),
    )
    return " = ".join(f"{name} {len(table):,}" for name, table in tables) + ": equal"


def _expect(data: Dataset, scenario: Scenario) -> _Expected:
    return _Expected(
        results=independent.hourly_delays(data, scenario),
        alerts=set(independent.alerts(data, scenario)["flight_id"].tolist()),
        too_late=sum(independent.too_late(data, scenario)),
    )
