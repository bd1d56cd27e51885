"""What a connector must stand, item by item, in whatever session the caller has: Classic, Connect, a cluster.

Each function is an item or a few that happen to one query; the names are those of the table in docs/spark.md.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark import table
from magnetar.wire import pulsar_pb2 as pb
from support.history_topics import HistoryTopic
from support.spark_queries import batched, pieces, plain, publish
from support.spark_topics import new_topic, numbered, set_partitions
from support.standalone import StandaloneProcess, wait_until

MANY_TOPICS = int(os.environ.get("MAGNETAR_MANY_TOPICS", "100"))
DEADLINE_S = 120.0


def accept(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> list[str]:
    """Goes through all items; their names. Raises AssertionError."""
    items: tuple[Callable[[SparkSession, StandaloneProcess, Path], None], ...] = (
        batched_chunked_and_encrypted,
        null_values_and_delayed,
        markers_are_hidden,
        compacted,
        schema_evolution,
        many_topics,
        history_as_a_table,
        one_stream,
    )
    for item in items:
        item(spark, standalone, folder)
    return [item.__name__ for item in items]


def read(spark: SparkSession, standalone: StandaloneProcess, topic: str, **more: str) -> DataFrame:
    where = {} if "topicsPattern" in more else {"topic": topic}
    return (
        spark.read.format("magnetar").options(**{"service.url": standalone.http_url, **where, **more}).load()
    )


def texts(frame: DataFrame) -> list[str]:
    """Values in their order."""
    return [bytes(row["value"]).decode() for row in frame.select("value").collect()]


def batched_chunked_and_encrypted(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    topic = new_topic(standalone)
    sealed = plain("sealed", encryption_algo="AES")
    sealed[0].encryption_keys.add(key="k", value=b"v")
    large = pieces("A" * 1000, of=4, uuid="one")
    publish(standalone, topic, [batched("a", "b"), *large[:2], sealed, *large[2:], plain("z")])
    wanted = sorted(["a", "b", "A" * 1000, "z"])
    for tasks in ("1", "4"):
        rows = read(spark, standalone, topic, encrypted="skip", minPartitions=tasks)
        assert sorted(texts(rows)) == wanted


def null_values_and_delayed(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    topic = new_topic(standalone)
    later = plain("later", deliver_at_time=time.time_ns() // 1_000_000 + 3_600_000)
    publish(standalone, topic, [batched("a", None), plain("", null_value=True, partition_key="k"), later])
    rows = read(spark, standalone, topic).select("value", "is_null_value").collect()
    found = [(row["value"] and bytes(row["value"]), row["is_null_value"]) for row in rows]
    assert found == [(b"a", False), (None, True), (None, True), (b"later", False)]


def markers_are_hidden(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    """Of replicated subscriptions (10 to 13) and of transactions (20 to 22)."""
    topic = new_topic(standalone)
    marks = [plain("marker", marker_type=number) for number in (10, 13, 20, 22)]
    publish(standalone, topic, [*marks[:2], plain("a"), *marks[2:], plain("b"), marks[0]])
    assert texts(read(spark, standalone, topic)) == ["a", "b"]


def compacted(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    topic = new_topic(standalone)
    values = [f"{key}{number}" for number in range(2) for key in "ab"]
    publish(standalone, topic, [plain(value, partition_key=value[0]) for value in values])
    path = f"persistent/public/default/{topic}/compaction"
    standalone.admin("PUT", path)
    wait_until(lambda: standalone.admin("GET", path)["status"] == "SUCCESS", DEADLINE_S, "compacted")
    assert texts(read(spark, standalone, topic)) == values


def schema_evolution(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    topic = new_topic(standalone)
    first = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    more = {"name": "b", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*first["fields"], more]}
    with Client(standalone.broker_url) as client:
        old, new = (
            client.register_schema(
                TopicName.parse(topic),
                pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=json.dumps(definition).encode()),
            )
            for definition in (first, second)
        )
    entries = [("\x02", old), ("\x04\x02\x02x", new), ("\x06", old)]
    publish(standalone, topic, [plain(value, schema_version=version) for value, version in entries])
    rows = read(spark, standalone, topic, valueFormat="auto").select("value.a", "value.b").collect()
    assert [(row["a"], row["b"]) for row in rows] == [(1, None), (2, "x"), (3, None)]


def many_topics(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    name = new_topic(standalone)
    for number in range(MANY_TOPICS):
        publish(standalone, f"{name}-{number}", [plain(f"{number}")])
    found = texts(read(spark, standalone, "", topicsPattern=f"{name}-.*"))
    assert sorted(map(int, found)) == list(range(MANY_TOPICS))


def history_as_a_table(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    """Its files are scans of Spark's own reader, the tail is the source's."""
    topic = HistoryTopic(standalone, f"persistent://public/default/{new_topic(standalone)}")
    publish(standalone, topic.topic, [batched("a", None), plain("b", partition_key="k")])
    standalone.admin("PUT", f"{topic.path}/unload")
    topic.offload()
    publish(standalone, topic.topic, [plain("c")])
    frame = table(spark, topic.topic, service_url=standalone.http_url)
    assert frame.schema == read(spark, standalone, topic.topic).schema
    found = [row["value"] and bytes(row["value"]) for row in frame.orderBy("entry_index").collect()]
    assert found == [b"a", None, b"b", b"c"]
    (only,) = frame.where("key = CAST('k' AS BINARY)").collect()
    assert bytes(only["value"]) == b"b"
    assert sum(".parquet" in name for name in frame.inputFiles()) == 1


@contextmanager
def producing(standalone: StandaloneProcess, topic: str) -> Iterator[list[str]]:
    """A producer that goes on until the end; what it has sent."""
    sent: list[str] = []
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.5):
            publish(standalone, topic, [plain(f"later-{len(sent):05d}")])
            sent.append(f"later-{len(sent):05d}")

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def one_stream(spark: SparkSession, standalone: StandaloneProcess, folder: Path) -> None:
    """A query over two topics into a third one: it fails in the middle of a batch and begins again; ends
    while producers go on; gets a partition while it runs; loses a topic: an error, or not if so wished."""
    name, target = new_topic(standalone), new_topic(standalone, partitions=1)
    first, second = f"{name}-a", f"{name}-b"
    set_partitions(standalone, first, 1, method="PUT")
    publish(standalone, f"{first}-partition-0", [plain(value) for value in numbered(60)])
    publish(standalone, second, [plain(value) for value in numbered(40, 100)])
    repaired = folder / "repaired"
    path = str(repaired)

    def breaks(value: bytes) -> bytes:
        if bytes(value) == b"v00030" and not os.path.exists(path):
            raise ValueError("in the middle of a batch")
        return bytes(value)

    through = udf(breaks, "binary")
    where = {"service.url": standalone.http_url, "topicsPattern": f"{name}-."}
    more = {"startingOffsets": "earliest", "maxRowsPerTrigger": "40"}

    def start(*, ends: bool, strict: bool = True) -> Any:
        stream = (
            spark.readStream.format("magnetar").options(**where, **more, failOnDataLoss=str(strict)).load()
        )
        writer = stream.select(through("value").alias("value")).writeStream.format("magnetar")
        writer = writer.options(**{"service.url": standalone.http_url, "topic": target})
        writer = writer.option("checkpointLocation", str(folder / "accepted"))
        return (
            writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="0.2 seconds")
        ).start()

    def written() -> list[str]:
        return sorted(texts(read(spark, standalone, target)))

    with producing(standalone, second) as later:
        error = failure_of(start(ends=True))
        assert "in the middle of a batch" in error, error
        repaired.touch()
        assert start(ends=True).awaitTermination(DEADLINE_S), "it ends, although producers go on"
    everything = numbered(60) + numbered(40, 100) + later
    assert set(numbered(60) + numbered(40, 100)) <= set(written()) <= set(everything)

    running = start(ends=False)
    set_partitions(standalone, first, 2, method="POST")
    publish(standalone, f"{first}-partition-1", [plain("of a new partition")])
    everything += ["of a new partition"]
    wait_until(lambda: len(written()) >= len(everything), DEADLINE_S, "read the new partition")
    running.stop()
    assert written() == sorted(everything), "each row once"

    standalone.admin("DELETE", f"persistent/public/default/{second}")
    publish(standalone, f"{first}-partition-1", [plain("after the loss")])
    error = failure_of(start(ends=True))
    assert "data loss" in error, error
    assert start(ends=True, strict=False).awaitTermination(DEADLINE_S)
    assert written() == sorted([*everything, "after the loss"])


def failure_of(query: Any) -> str:
    """Why a query ended."""
    with suppress(Exception):
        query.awaitTermination(DEADLINE_S)
    return str(query.exception())
