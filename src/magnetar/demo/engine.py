"""Spark's side of the tour: the session, the four standing queries, and the batch over the same topics.

```
departures, weather ── delays ────────▶ delays-by-hour ── table ──▶ Parquet
departures ─────────── alerts ────────▶ alerts
departures, weather ── dead letters ──▶ dead-letters
```

Each arrow into a topic is the data source's exactly-once sink. The Parquet files are written by a query
that reads the results topic: what lies in the files is what any other reader of the topic gets.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.storagelevel import StorageLevel

from magnetar.demo import pipeline
from magnetar.demo.data import Dataset
from magnetar.demo.events import DEPARTURES, WEATHER
from magnetar.demo.scenario import Scenario
from magnetar.demo.standing import StandingQueries
from magnetar.demo.topics import ALERTS, DEAD_LETTERS, RESULTS, DemoCluster

FORMAT = "magnetar"
_OFTEN = "500 milliseconds"
_SELDOM = "2 seconds"
"""For queries without a waiting reader: each batch costs Spark a round of planning and of Python
processes."""
_KEEP = StorageLevel.MEMORY_AND_DISK

CONFIGURATION = {
    # State of 11 days of flights is a few thousand rows: two tasks per stage are plenty for two cores.
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    # A run is over before the optimising compiler pays off, and its threads compete for the same two cores:
    # without it the whole tour takes a third less CPU, a full year included.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.daemon.module": "magnetar.demo.worker_daemon",
    # A batch without data would only close windows that the next batch with data closes anyway.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Every batch of every query is judged in the end, so all progress reports are kept.
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
"""Settings of Spark for the tour, in addition to the session's defaults."""


def start_session(folder: Path) -> SparkSession:
    """A local Spark with the data source; takes 4 to 8 s, most of it the JVM.

    The output of the JVM and its Python workers goes to `spark.log` in `folder`.
    """
    from magnetar.spark.session import session

    # Spark warns about the pandas version on each conversion; the tour converts through Arrow only.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # After Ctrl-C, a query stops in the middle of a call: that needs no stack.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with _inherited_stderr(folder / "spark.log"):
        return session("magnetar tour", master="local[2]", config=CONFIGURATION)


@contextmanager
def _inherited_stderr(path: Path) -> Iterator[None]:
    """Children that the body starts write their standard error to `path`, through the inherited
    descriptor."""
    saved = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The results of the batch over the topics."""

    results: pd.DataFrame
    departures_stored: int
    departures_distinct: int
    weather_stored: int
    weather_distinct: int
    alerts: set[int]
    """Flight ids that raise an alert."""
    dead_letters: int
    """Events of both topics beyond the allowed lateness."""
    dead_letters_stored: int
    """Messages that the stream has put into the dead-letter topic."""


class Engine:
    """The session, bound to the tour's topics and folder."""

    def __init__(
        self, spark: SparkSession, cluster: DemoCluster, data: Dataset, scenario: Scenario, folder: Path
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._scenario = scenario
        self._folder = folder
        self._airports = spark.createDataFrame(pa.Table.from_pandas(data.airports, preserve_index=False))
        self._planes = spark.createDataFrame(pa.Table.from_pandas(data.planes, preserve_index=False))
        self.parquet = folder / "delays.parquet"
        self.queries = StandingQueries()

    # -- stream -------------------------------------------------------------------------------------------

    def start_queries(self) -> None:
        """Start the standing queries; they run until `stop`."""
        scenario = self._scenario
        departures = pipeline.parse(self._stream(DEPARTURES), pipeline.DEPARTURE_FIELDS)
        observations = pipeline.parse(self._stream(WEATHER), pipeline.OBSERVATION_FIELDS)
        either = pipeline.parse(self._stream(DEPARTURES, WEATHER), pipeline.LATENESS_FIELDS)
        delays = pipeline.hourly_delays(departures, observations, self._airports, self._planes, scenario)
        self._to_topic("delays", pipeline.result_message(delays), RESULTS, trigger=_OFTEN)
        # Key_Shared hands out whole entries, so an entry must not mix keys.
        alerts = pipeline.alert_message(pipeline.alerts(departures, self._airports, scenario))
        self._to_topic("alerts", alerts, ALERTS, trigger=_SELDOM, batching="key")
        self._to_topic("dead letters", pipeline.dead_letters(either, scenario), DEAD_LETTERS, trigger=_SELDOM)
        results = self._stream(RESULTS)
        table = pipeline.parse(results, pipeline.RESULT_FIELDS).drop(*pipeline.RAW_COLUMNS)
        writer = (
            table.writeStream.queryName("table")
            .format("parquet")
            .option("path", str(self.parquet))
            .option("checkpointLocation", self._checkpoint("table"))
            .trigger(processingTime=_OFTEN)
        )
        self.queries.start("table", writer.start)

    def drain(self, *names: str) -> None:
        """Return when these queries, or all, have worked through everything that is published now.

        Raises Spark's `StreamingQueryException` when one of them has failed.
        """
        self.queries.drain(names)

    def watermark(self) -> str:
        """The watermark of the main query, ISO 8601; empty before its first batch."""
        last = self.queries.last_progress("delays")
        return "" if last is None else str(last.eventTime.get("watermark", ""))

    def batches_started(self) -> int:
        """Micro-batches of the main query whose input is settled; each call lists a folder."""
        offsets = Path(self._checkpoint("delays")) / "offsets"
        try:
            return sum(entry.name.isdigit() for entry in os.scandir(offsets))
        except FileNotFoundError:
            return 0

    def rows_read(self, name: str) -> int:
        """Rows that a query has read."""
        return sum(progress.numInputRows for progress in self.queries.progress(name))

    def dropped_by_watermark(self) -> int:
        """Rows that any stateful operator refused as too late; the watermark is set so that this is 0."""
        return sum(
            state.numRowsDroppedByWatermark
            for progress in self.queries.progress()
            for state in progress.stateOperators
        )

    def write_progress(self, path: Path) -> None:
        """Write Spark's own report on every micro-batch of every query there, one JSON object a line."""
        with path.open("w") as file:
            for progress in self.queries.progress():
                file.write(json.dumps(json.loads(progress.json)) + "\n")

    def failure(self) -> str | None:
        """The first line of what stopped a query, or None while all run."""
        return self.queries.failure()

    def stop_queries(self) -> None:
        """Stop the standing queries, not the session."""
        self.queries.stop()

    # -- batch --------------------------------------------------------------------------------------------

    def run_batch(self) -> BatchOutcome:
        """Runs the functions of the stream over the same topics from the beginning, as one batch."""
        scenario = self._scenario
        # Parsed once and kept: the pipeline and all the figures need the same events.
        departures = pipeline.parse(self._batch(DEPARTURES), pipeline.DEPARTURE_FIELDS).persist(_KEEP)
        observations = pipeline.parse(self._batch(WEATHER), pipeline.OBSERVATION_FIELDS).persist(_KEEP)
        try:
            results = pipeline.closed(
                pipeline.hourly_delays(departures, observations, self._airports, self._planes, scenario)
            )
            table = to_pandas(results)
            flights = departures.where("flight_id >= 0")
            reports = observations.where("station != ''")
            late = [pipeline.dead_letters(events, scenario) for events in (departures, observations)]
            # One job for all figures: starting a job costs more than counting.
            facts = (
                flights.agg(F.count("*"), F.count_distinct("flight_id"))
                .union(reports.agg(F.count("*"), F.count_distinct("station", "event_ms")))
                .union(late[0].union(late[1]).agg(F.count("*"), F.lit(0).cast("bigint")))
                .union(self._batch(DEAD_LETTERS).agg(F.count("*"), F.lit(0).cast("bigint")))
                .collect()
            )
            alerts = pipeline.alerts(departures, self._airports, scenario).select("flight_id").collect()
            return BatchOutcome(
                results=table,
                departures_stored=facts[0][0],
                departures_distinct=facts[0][1],
                weather_stored=facts[1][0],
                weather_distinct=facts[1][1],
                alerts={row["flight_id"] for row in alerts},
                dead_letters=facts[2][0],
                dead_letters_stored=facts[3][0],
            )
        finally:
            departures.unpersist()
            observations.unpersist()

    def stream_results(self) -> pd.DataFrame:
        """What the stream wrote to the results topic."""
        table = pipeline.parse(self._batch(RESULTS), pipeline.RESULT_FIELDS)
        return to_pandas(table.drop(*pipeline.RAW_COLUMNS))

    def parquet_results(self) -> pd.DataFrame:
        """What the stream wrote to Parquet, as any reader of the folder sees it."""
        return pd.read_parquet(self.parquet)

    # -- plumbing -----------------------------------------------------------------------------------------

    def _address(self) -> dict[str, str]:
        return {"service.url": self._cluster.broker_url, "admin.url": self._cluster.http_url}

    def _source(self, *names: str) -> dict[str, str]:
        topics = ",".join(self._cluster.topic(name) for name in names)
        return {**self._address(), "topics": topics, "columns": ",".join(pipeline.RAW_COLUMNS)}

    def _stream(self, *names: str) -> DataFrame:
        options = {**self._source(*names), "startingOffsets": "earliest"}
        return self._spark.readStream.format(FORMAT).options(**options).load()

    def _batch(self, *names: str) -> DataFrame:
        return self._spark.read.format(FORMAT).options(**self._source(*names)).load()

    def _to_topic(self, name: str, messages: DataFrame, topic: str, *, trigger: str, **options: str) -> None:
        writer = (
            messages.writeStream.queryName(name.replace(" ", "_"))
            .format(FORMAT)
            .options(**self._address(), topic=self._cluster.topic(topic), **options)
            .option("checkpointLocation", self._checkpoint(name))
            .outputMode("append")
            .trigger(processingTime=trigger)
        )
        self.queries.start(name, writer.start)

    def _checkpoint(self, name: str) -> str:
        return str(self._folder / "checkpoints" / name.replace(" ", "-"))


def to_pandas(frame: DataFrame) -> pd.DataFrame:
    """All rows, through Arrow, with nullable types."""
    table: pd.DataFrame = frame.toArrow().to_pandas(types_mapper=_NULLABLE.get)
    return table


_NULLABLE = {pa.int32(): pd.Int64Dtype(), pa.int64(): pd.Int64Dtype()}
