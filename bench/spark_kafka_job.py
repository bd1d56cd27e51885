"""The peer's side of `spark_peers`: a PySpark job that reads a Kafka topic.

Imports PySpark alone, so that it runs with whichever version the connector loads in.

    python spark_kafka_job.py BOOTSTRAP TOPIC ROWS RUNS JARS

Prints one line of JSON: PySpark's version and the seconds of each run, by kind.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession


def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows go through Python, as in a job that does something with them there."""
    yield from batches


def seconds(frame: DataFrame) -> float:
    """To read all of it into nothing."""
    started_s = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started_s


def main() -> None:
    """Measures; the first run of each kind warms up and does not count."""
    bootstrap, topic, rows, runs, jars = sys.argv[1:]
    builder = SparkSession.builder.appName("bench").master("local[2]").config("spark.jars", jars)
    for name, setting in (
        ("spark.ui.enabled", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
    ):
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()

    def value() -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        loaded = reader.option("subscribe", topic).option("minPartitions", "4").load()
        return loaded.select("value")

    counted = value().count()
    if counted != int(rows):
        raise SystemExit(f"{counted} rows were read, {rows} were written")
    kinds: dict[str, Callable[[], DataFrame]] = {
        "jvm": value,
        "python": lambda: value().mapInArrow(pass_on, "value binary"),
    }
    taken = {kind: [seconds(frame()) for _ in range(int(runs) + 1)][1:] for kind, frame in kinds.items()}
    print(json.dumps({"version": pyspark.__version__, "seconds": taken}))


if __name__ == "__main__":
    main()
