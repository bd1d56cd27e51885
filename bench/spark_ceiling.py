"""How many rows a second can a Python data source hand to Spark at most?

    python -m bench.spark_ceiling [--rows N] [--runs N] [--partitions 1,2] [--batches 2048,…] [--json FILE]

The source reads nothing: each task makes one Arrow batch before it begins, and hands it out again and again
until it gave its share of the rows. What it takes is the road from a Python data source into Spark, which no
reader in Python can be faster than. The columns are those of `spark_peers` (a value of 100 B) and of
`spark_history` (six columns), read with `local[2]` into nothing, which rows reach without leaving the JVM,
and through `mapInArrow` (`python`). Runs take turns; the first of each kind warms up, shown is the median:
rows a second, and the CPU time of all of Spark for a row, which neighbours on the machine change less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench import machine, proc, spark_kafka_job
from magnetar.arrow.arrays import arrow_schema
from magnetar.arrow.columns import columns_ddl
from magnetar.spark import session

ROW_BYTES: Final = 100
COLUMNS: Final = {
    "value": ("value",),
    "columns": ("value", "key", "entry_index", "publish_time", "event_time", "producer_name"),
}
BATCH_ROWS: Final = (2_048, 8_192, 20_000, 32_768, 131_072)
"""20,000 is what the source's pieces of 2 MiB come to."""


def made_batch(columns: tuple[str, ...], rows: int) -> pa.RecordBatch:
    """Rows like those of the other measurements."""
    chance = np.random.default_rng(1)
    data = pa.py_buffer(chance.bytes(rows * ROW_BYTES))
    offsets = pa.py_buffer(np.arange(0, rows * ROW_BYTES + 1, ROW_BYTES, dtype=np.int32))
    times = pa.array(np.full(rows, 1_800_000_000_000_000)).cast(pa.timestamp("us", tz="UTC"))
    built: dict[str, Callable[[], pa.Array]] = {
        "value": lambda: pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data]),
        "key": lambda: pa.array([b"key-%d" % number for number in chance.integers(0, 10_000, rows)]),
        "entry_index": lambda: pa.array(np.arange(rows)),
        "publish_time": lambda: times,
        "event_time": lambda: times,
        "producer_name": lambda: pa.array(["standalone-0-1"] * rows),
    }
    return pa.RecordBatch.from_arrays([built[name]() for name in columns], schema=arrow_schema(columns))


class _Share(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class _CeilingReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._columns = COLUMNS[options["kind"]]
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])
        self._batch_rows = int(options["batch"])

    def partitions(self) -> list[InputPartition]:
        return [_Share(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        batch = made_batch(self._columns, self._batch_rows)
        left = partition.rows
        while left:
            yield batch if left >= batch.num_rows else batch.slice(0, left)
            left -= min(left, batch.num_rows)


class CeilingSource(DataSource):
    """A source without a source."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return columns_ddl(COLUMNS[self.options["kind"]], "binary")

    def reader(self, schema: StructType) -> DataSourceReader:
        return _CeilingReader(dict(self.options))


def frame_of(spark: SparkSession, **options: Any) -> DataFrame:
    """Rows of it: `kind` of COLUMNS, `rows` by `tasks`, in batches of `batch`."""
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("ceiling").options(**given).load()


def measure(rows: int, runs: int, partitions: list[int], batches: list[int]) -> dict[str, float]:
    """Rows a second of every case, and microseconds of CPU a row."""
    spark = session("bench", master="local[2]")
    spark.dataSource.register(CeilingSource)
    cases: dict[str, Callable[[], DataFrame]] = {}
    for kind in COLUMNS:
        for tasks in partitions:
            for batch_rows in batches:

                def plain(kind: str = kind, tasks: int = tasks, batch_rows: int = batch_rows) -> DataFrame:
                    return frame_of(spark, kind=kind, tasks=tasks, batch=batch_rows, rows=rows)

                def through(plain: Callable[[], DataFrame] = plain) -> DataFrame:
                    frame = plain()
                    return frame.mapInArrow(spark_kafka_job.pass_on, frame.schema)

                cases[f"{kind}, {tasks} task(s), batches of {batch_rows}"] = plain
                cases[f"{kind}, {tasks} task(s), batches of {batch_rows}, python"] = through
    taken_s: dict[str, list[float]] = {name: [] for name in cases}
    cpu_s: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs + 1):
        for name, case in cases.items():
            before_s = proc.usage(os.getpid()).cpu_s
            taken_s[name].append(spark_kafka_job.seconds(case()))
            cpu_s[name].append(proc.usage(os.getpid()).cpu_s - before_s)
    spark.stop()
    rates = {name: rows / statistics.median(each[1:]) for name, each in taken_s.items()}
    costs = {
        f"{name}, CPU us a row": statistics.median(each[1:]) / rows * 1e6 for name, each in cpu_s.items()
    }
    return rates | costs


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of each read (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs, whose median is shown (%(default)s)")
    parser.add_argument("--partitions", type=_numbers, default=[1, 2], help="tasks (1,2)")
    parser.add_argument("--batches", type=_numbers, default=list(BATCH_ROWS), help="rows of a batch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results = measure(arguments.rows, arguments.runs, arguments.partitions, arguments.batches)
    print(json.dumps(machine.describe(Path(tempfile.gettempdir()))))
    for name, value in results.items():
        print(f"{name:60} {value:12,.{2 if value < 100 else 0}f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
