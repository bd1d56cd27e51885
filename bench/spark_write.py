"""How many rows a second does Spark write to a topic exactly once? Rows of 100 B, value only.

    python -m bench.spark_write [--rows N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

Rows come from Spark itself, which makes them from nothing. Batch: a DataFrame saved under a name, from the
call to its return. Stream: micro-batches of `rows`, by Spark's own time for each. The first of each warms up
and does not count; shown is the median of the others, at least three. The peer beside it is
`delivery=at_least_once`, where tasks write by themselves and a repeated one writes twice.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from bench.spark_program import Amount, Given, main
from magnetar.spark import session

ROW = "0123456789" * 10
RUNS_MIN = 3
TASKS = 4


def rows_of(frame: DataFrame) -> DataFrame:
    """Rows of 100 B, whatever the frame holds."""
    return frame.selectExpr(f"'{ROW}' AS value")


def batch(spark: SparkSession, options: dict[str, str], rows: int, seconds: float) -> float:
    """Rows a second of a DataFrame that is saved, the median of the runs."""
    rates: list[float] = []
    end_s = time.monotonic() + seconds
    warm = False
    while len(rates) < RUNS_MIN or time.monotonic() < end_s:
        started_s = time.perf_counter()
        writer = rows_of(spark.range(0, rows, numPartitions=TASKS)).write.format("magnetar")
        if options.get("delivery") != "at_least_once":
            writer = writer.option("writeId", uuid4().hex)
        writer.options(**options).mode("append").save()
        if warm:
            rates.append(rows / (time.perf_counter() - started_s))
        warm = True
    return statistics.median(rates)


def stream(spark: SparkSession, options: dict[str, str], rows: int, seconds: float, folder: Path) -> float:
    """Rows a second of micro-batches, the median of Spark's times for them."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    frame = rows_of(source.option("numPartitions", TASKS).load())
    writer = frame.writeStream.format("magnetar").options(**options)
    query = writer.option("checkpointLocation", str(folder / uuid4().hex)).start()
    try:
        end_s = time.monotonic() + seconds
        rates: dict[int, float] = {}
        while len(rates) <= RUNS_MIN or time.monotonic() < end_s:
            query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    rates[progress["batchId"]] = rows * 1000 / progress["durationMs"]["triggerExecution"]
    finally:
        query.stop()
    return statistics.median([rate for number, rate in rates.items() if number > min(rates)])


def run(given: Given) -> dict[str, float]:
    """Writes in every way; rows a second by kind."""
    service_url, http_url, rows, seconds, folder, _ = given
    spark = session("bench", master="local[2]", config={"spark.log.level": "OFF"})
    results: dict[str, float] = {}
    name = f"bench-{uuid4().hex[:8]}"
    for kind, delivery in (("", "exactly_once"), ("_at_least_once", "at_least_once")):
        options = {
            "service.url": service_url,
            "admin.url": http_url,
            "topic": f"{name}{kind}",
            "delivery": delivery,
        }
        results[f"rows_per_s{kind}"] = batch(spark, options, rows, seconds / 4)
        results[f"rows_per_s_stream{kind}"] = stream(spark, options, rows, seconds / 4, folder)
    return results


if __name__ == "__main__":
    main(__doc__, Amount("rows", 1_000_000, "rows of a write (%(default)s)"), 40.0, run)
