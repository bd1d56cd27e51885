"""What tests with Spark share: one session, and topics filled by the official client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pulsar
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from magnetar.spark import session
from support.official import connect
from support.standalone import StandaloneProcess


def spark_session() -> SparkSession:
    """The one session of this process; tasks are tried three times."""
    return session("tests", master="local[2,3]", config={"spark.sql.shuffle.partitions": "2"})


def numbered(count: int, first: int = 0) -> list[str]:
    """Texts that sort like their numbers, from `first` on."""
    return [f"v{number:05d}" for number in range(first, first + count)]


def new_topic(standalone: StandaloneProcess, *, partitions: int = 0) -> str:
    """Name of a topic of the caller's own; with partitions it is created."""
    topic = f"spark-{uuid4().hex[:8]}"
    if partitions:
        set_partitions(standalone, topic, partitions, method="PUT")
    return topic


def set_partitions(standalone: StandaloneProcess, topic: str, partitions: int, *, method: str) -> None:
    """PUT creates a partitioned topic, POST gives it more partitions."""
    standalone.admin(method, f"persistent/public/default/{topic}/partitions", partitions)


@contextmanager
def official_client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    """A quiet client."""
    client = connect(standalone)
    try:
        yield client
    finally:
        client.close()


def fill(standalone: StandaloneProcess, topic: str, values: list[str], **producer: Any) -> None:
    """Publishes the values with event times and properties; the key is the last character."""
    producer = {"batching_enabled": True, "batching_max_messages": 10, **producer}
    with official_client(standalone) as client:
        sender = client.create_producer(topic, block_if_queue_full=True, **producer)
        for number, value in enumerate(values):
            sender.send_async(
                value.encode(),
                None,
                partition_key=value[-1],
                event_timestamp=1_700_000_000_000 + number,
                properties={"value": value},
            )
        sender.flush()
        sender.close()


def connection(standalone: StandaloneProcess, topic: str) -> dict[str, str]:
    """Options that lead to the topic."""
    return {"service.url": standalone.broker_url, "admin.url": standalone.http_url, "topic": topic}


def reading(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, **options: str
) -> DataFrameReader:
    """A batch read."""
    return spark.read.format("magnetar").options(**connection(standalone, topic), **options)


def values_of(frame: DataFrame) -> list[str]:
    """The values as text, in the frame's order."""
    return [bytes(row["value"]).decode() for row in frame.select("value").collect()]
