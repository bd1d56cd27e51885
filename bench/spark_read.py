"""How many rows a second does a Spark batch job read from topics? Rows of 100 B.

    python -m bench.spark_read [--rows N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

Fills two topics, one in batches of 100 and one unbatched, and reads each with `local[2]` into Spark's `noop`
sink: the value alone, and every column. The first read of each kind warms up and does not count; shown is the
median of the runs that fit into the time, at least three.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from bench import machine
from bench.broker import Cpus, magnetar_command, started
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


def run(service_url: str, http_url: str, rows: int, seconds: float) -> dict[str, float]:
    """Fills and reads; rows a second by kind."""
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


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the batched topic (4000000)")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured time of all kinds (30)")
    parser.add_argument("--service-url", default="", help="a broker that runs; else one is started")
    parser.add_argument("--http-url", default="")
    parser.add_argument("--broker-pid", type=int, help="taken as every measuring module does; not used")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service_url, http_url = arguments.service_url, arguments.http_url
        if not service_url:
            broker = stack.enter_context(started(magnetar_command(), folder, Cpus(None, None)))
            service_url, http_url = broker.service_url, broker.http_url
        results = run(service_url, http_url, arguments.rows, arguments.seconds)
        described = machine.describe(folder)
    print(json.dumps(described))
    for name, value in results.items():
        print(f"{name:32} {value:12,.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
