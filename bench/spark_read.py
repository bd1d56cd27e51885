"""How many rows a second does a Spark batch job read from topics? Rows of 100 B.

    python -m bench.spark_read [--rows N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

Fills two topics, one in batches of 100 and one unbatched, and reads each with `local[2]` into Spark's `noop`
sink: the value alone, and every column. The first read of each kind warms up and does not count; shown is the
median of the runs that fit into the time, at least three.
"""

from __future__ import annotations

import statistics
import time
from uuid import uuid4

from bench.spark_program import Amount, Given, main
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark import session
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

ROW = b"0123456789" * 10
BATCH = 100
RUNS_MIN = 3
UNBATCHED_SHARE = 16
"""A part of the rows is enough where each is an entry."""


def fill(client: Client, topic: TopicName, rows: int, *, batch: int) -> None:
    """Publishes `rows` rows in entries of `batch`."""
    single = pb.SingleMessageMetadata()
    payload = build_batch([(single, ROW)] * batch) if batch > 1 else ROW
    with Producer(client, topic) as producer:
        for sequence_id in range(0, rows, batch):
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
            )
            if batch > 1:
                metadata.num_messages_in_batch = batch
            producer.send(sequence_id, build_entry(metadata, payload), batch)
        producer.flush()


def measure(options: dict[str, str], rows: int, seconds: float) -> float:
    """Rows a second, the median of the runs."""
    spark = session("bench", master="local[2]")
    rates: list[float] = []
    end_s = time.monotonic() + seconds
    warm = False
    while len(rates) < RUNS_MIN or time.monotonic() < end_s:
        started_s = time.perf_counter()
        frame = spark.read.format("magnetar").options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
        taken_s = time.perf_counter() - started_s
        if warm:
            rates.append(rows / taken_s)
        warm = True
    counted = spark.read.format("magnetar").options(**options).load().count()
    if counted != rows:
        raise SystemExit(f"{counted} rows were read, {rows} were written")
    return statistics.median(rates)


def run(given: Given) -> dict[str, float]:
    """Fills and reads; rows a second by kind."""
    service_url, http_url, rows, seconds, _, _ = given
    name = f"bench-{uuid4().hex[:8]}"
    results: dict[str, float] = {}
    with Client(service_url, admin_url=http_url) as client:
        for kind, batch, count in (("batched", BATCH, rows), ("unbatched", 1, rows // UNBATCHED_SHARE)):
            topic = TopicName.parse(f"{name}-{kind}")
            fill(client, topic, count, batch=batch)
            options = {
                "service.url": service_url,
                "admin.url": http_url,
                "topic": str(topic),
                "minPartitions": "4",
            }
            suffix = "" if kind == "batched" else "_unbatched"
            value_only = {**options, "columns": "value"}
            results[f"rows_per_s{suffix}"] = measure(value_only, count, seconds / 4)
            results[f"rows_per_s_all_columns{suffix}"] = measure(options, count, seconds / 4)
    return results


if __name__ == "__main__":
    main(__doc__, Amount("rows", 4_000_000, "rows of the batched topic (%(default)s)"), 30.0, run)
