"""How fast does Spark read offloaded history as a topic, beside its own reader over the very same files?

    python -m bench.spark_history [--rows N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

Fills a topic with rows of 100 B, with keys and event times, in batches of 100, offloads it, and reads it with
`local[2]` into Spark's `noop` sink: the value alone, and six columns; as `magnetar.spark.table`, as
`format("magnetar")` and by `spark.read.parquet` over the files with the columns that these are made of. Rows
are random bytes, so that the files are as large as what they hold. `_python` is the same through
`mapInArrow`, as a job that works on rows in Python does. Runs of the readers take turns; the first of each
kind warms up, shown is the median.
The broker's folder must be of this machine.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.spark_program import Amount, Given, main
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark import session, table
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

ROW_BYTES: Final = 100
BATCH: Final = 100
KEYS: Final = 10_000
RUNS_MIN: Final = 3
DEADLINE_S: Final = 600.0
COLUMNS: Final = {
    "value": (["value"], ["payload"]),
    "columns": (
        ["value", "key", "entry_index", "publish_time", "event_time", "producer_name"],
        ["payload", "key", "entry_index", "publish_time", "event_time", "producer_name"],
    ),
}
"""By kind: of the topic's table, and of the files."""


def fill(client: Client, topic: TopicName, rows: int) -> None:
    """Publishes random rows."""
    chance = random.Random(1)
    with Producer(client, topic) as producer:
        for sequence_id in range(0, rows, BATCH):
            now_ms = time.time_ns() // 1_000_000
            singles = [
                (
                    pb.SingleMessageMetadata(
                        partition_key=f"key-{chance.randrange(KEYS)}", event_time=now_ms, sequence_id=number
                    ),
                    chance.randbytes(ROW_BYTES),
                )
                for number in range(sequence_id, sequence_id + BATCH)
            ]
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=sequence_id,
                publish_time=now_ms,
                num_messages_in_batch=BATCH,
                highest_sequence_id=sequence_id + BATCH - 1,
            )
            producer.send(sequence_id, build_entry(metadata, build_batch(singles)), BATCH)
        producer.flush()


def offload(client: Client, topic: TopicName) -> list[str]:
    """Has all of the topic copied; paths of the files. Raises SystemExit."""
    path = f"/admin/v2/persistent/{topic.tenant}/{topic.namespace}/{topic.local}"
    client.admin.call("PUT", f"{path}/unload")
    ledgers = client.admin.internal_stats(topic)["ledgers"]
    last = {"ledgerId": ledgers[-1]["ledgerId"], "entryId": 0, "partitionIndex": -1}
    client.admin.call("PUT", f"{path}/offload", last)
    end_s = time.monotonic() + DEADLINE_S
    while (found := client.admin.call("GET", f"{path}/offload"))["status"] == "RUNNING":
        if time.monotonic() > end_s:
            raise SystemExit("offloading takes too long")
        time.sleep(0.2)
    if found["status"] != "SUCCESS":
        raise SystemExit(f"nothing was offloaded: {found}")
    copies = [
        each["offloadedTo"] for each in client.admin.internal_stats(topic)["ledgers"] if each["offloaded"]
    ]
    return [
        f"{unquote(urlsplit(copy['url']).path)}/{segment['name']}"
        for copy in copies
        for segment in copy["segments"]
    ]


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _seconds(frame: DataFrame) -> float:
    begun_s = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun_s


def _compared(
    spark: SparkSession, frames: dict[str, Callable[[], DataFrame]], rows: int, seconds: float
) -> dict[str, float]:
    """Rows a second of each, the median; they take turns."""
    taken: dict[str, list[float]] = {kind: [] for kind in frames}
    end_s = time.monotonic() + seconds
    while len(taken["magnetar"]) <= RUNS_MIN or time.monotonic() < end_s:
        for kind, frame in frames.items():
            taken[kind].append(_seconds(frame()))
    for kind, frame in frames.items():
        if (counted := frame().count()) != rows:
            raise SystemExit(f"{counted} rows were read by {kind}, {rows} were written")
    return {kind: rows / statistics.median(each[1:]) for kind, each in taken.items()}


def _frames(
    spark: SparkSession, where: dict[str, str], files: list[str], columns: list[str]
) -> dict[str, Callable[[], DataFrame]]:
    def topic() -> DataFrame:
        return spark.read.format("magnetar").options(**where).load()

    def as_table() -> DataFrame:
        return table(spark, options=where)

    def parquet() -> DataFrame:
        return spark.read.parquet(*files).select(*columns)

    def through(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(_pass_on, frame.schema)

    return {
        "table": as_table,
        "parquet": parquet,
        "magnetar": topic,
        "table_python": lambda: through(as_table()),
        "parquet_python": lambda: through(parquet()),
        "magnetar_python": lambda: through(topic()),
    }


def run(given: Given) -> dict[str, float]:
    """Fills, offloads and reads; rows a second by kind, and the ratios."""
    topic = TopicName.parse(f"bench-{uuid4().hex[:8]}")
    with Client(given.service_url, admin_url=given.http_url) as client:
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        client.admin.call("POST", f"/admin/v2/namespaces/{topic.tenant}/{topic.namespace}/retention", kept)
        fill(client, topic, given.amount)
        files = offload(client, topic)
    spark = session("bench", master="local[2]")
    where = {"service.url": given.service_url, "admin.url": given.http_url, "topic": str(topic)}
    results: dict[str, float] = {}
    for kind, (ours, theirs) in COLUMNS.items():
        frames = _frames(spark, {**where, "columns": ",".join(ours)}, files, theirs)
        found = _compared(spark, frames, given.amount, given.seconds / len(COLUMNS))
        results |= {f"{kind}_{name}_rows_per_s": rate for name, rate in found.items()}
        for name in ("table", "magnetar"):
            for suffix in ("", "_python"):
                percent = 100 * found[f"{name}{suffix}"] / found[f"parquet{suffix}"]
                results[f"{kind}_{name}{suffix}_percent_of_parquet"] = percent
    spark.stop()
    return results


if __name__ == "__main__":
    main(__doc__, Amount("rows", 4_000_000, "rows of the topic (%(default)s)"), 60.0, run)
