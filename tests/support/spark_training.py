"""What sessions of the tests do, in small: the classes that it loads go into the archive of spark_classes.

Batches and streams of a Python source, Arrow, windows, joins, Parquet, SQL and JSON.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from magnetar.spark import session

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("more", pa.map_(pa.string(), pa.string())),
        ("parts", pa.list_(pa.string())),
    ]
)


def rows() -> Iterator[pa.RecordBatch]:
    """Four, of a few types."""
    row: dict[str, Any] = {"key": b"k", "at": None, "more": [], "parts": []}
    yield pa.RecordBatch.from_pylist([{**row, "number": number} for number in range(4)], schema=SCHEMA)


class Numbers(DataSource):
    """Reads `rows`."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "key binary, number long, at timestamp, more map<string, string>, parts array<string>"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return rows()


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {"at": 2}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return rows()

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget."""


def batches(spark: SparkSession, folder: str) -> None:
    """Queries that end."""
    frame = spark.read.format("numbers").load()
    frame.count()
    frame.toPandas()
    windows = frame.where("number > 1").groupBy(F.window("at", "1 hour"), "key")
    windows.agg(F.count("*").alias("rows"), F.collect_list("number")).orderBy("rows").collect()
    frame.select(F.udf(lambda number: number, "long")("number")).collect()
    frame.join(frame.select("key", F.col("number").alias("other")), "key").count()
    frame.write.parquet(f"{folder}/table")
    spark.read.parquet(f"{folder}/table").where("number > 2").collect()
    spark.createDataFrame([(1, "{}")], "a int, b string").createOrReplaceTempView("pairs")
    spark.sql("SELECT a, from_json(b, 'x int') AS parsed FROM pairs ORDER BY a").collect()


def streams(spark: SparkSession, folder: str) -> None:
    """Queries that go on."""
    stream = spark.readStream.format("numbers").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/first")
    writer.trigger(availableNow=True).start().awaitTermination()
    counts = stream.withWatermark("at", "1 hour").groupBy("key").count()
    writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = writer.option("checkpointLocation", f"{folder}/second").start()
    query.processAllAvailable()
    query.stop()


def main() -> None:
    """Ends when the JVM has ended: it writes the archive last."""
    spark = session("training", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    spark.dataSource.register(Numbers)
    with tempfile.TemporaryDirectory() as folder:
        batches(spark, folder)
        streams(spark, folder)
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
