"""How long does `magnetar sql` take over history and over a tail, beside its engine over the bare files?

    python -m bench.sql [--rows N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

Fills a topic with N rows of an Avro schema in batches of 1,000, offloads it, and fills another topic with a
tenth of N rows that stay at the broker. `exec_` is the command from its start to its end; the others are
queries in a process that has made one before. `bare_` is the engine over the same files, without a topic, a
plan or hidden rows. Each figure is the median; the first run of each kind warms up. `_mb` is the largest
resident memory of the command. The broker's folder must be of this machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Final
from uuid import uuid4

import duckdb
import fastavro

from bench.spark_history import offload
from bench.spark_program import Amount, Given, main
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.sql.limits import QueryLimits
from magnetar.sql.queries import Query
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

BATCH: Final = 1000
BODIES: Final = 97
"""Different batches, which are sent again and again."""
RUNS_MIN: Final = 5
SCHEMA: Final = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "number", "type": "int"},
        {"name": "delay", "type": "int"},
        {"name": "distance", "type": "double"},
    ],
}
CARRIERS: Final = ("AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "UA", "US", "VX", "WN", "YV")
AGGREGATE: Final = (
    "SELECT {0}carrier, count(*), avg({0}delay) FROM {1} WHERE {0}distance > 1000 GROUP BY 1 ORDER BY 1"
)


def bodies() -> list[bytes]:
    """Batches of rows."""
    parsed = fastavro.parse_schema(SCHEMA)
    made = []
    for body in range(BODIES):
        singles = []
        for number in range(BATCH):
            each = body * BATCH + number
            row = {
                "carrier": CARRIERS[each * 7 % len(CARRIERS)],
                "number": each,
                "delay": each * 31 % 240 - 30,
                "distance": float(each * 13 % 2500),
            }
            written = BytesIO()
            fastavro.schemaless_writer(written, parsed, row)
            singles.append(
                (pb.SingleMessageMetadata(partition_key=f"flight-{each % 5000}"), written.getvalue())
            )
        made.append(build_batch(singles))
    return made


def fill(client: Client, topic: TopicName, rows: int) -> None:
    """Publishes rows with a schema."""
    import json

    schema = pb.Schema(name="flight", type=pb.Schema.Avro, schema_data=json.dumps(SCHEMA).encode())
    version = client.register_schema(topic, schema)
    made = bodies()
    with Producer(client, topic) as producer:
        for number, sequence_id in enumerate(range(0, rows, BATCH)):
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                num_messages_in_batch=BATCH,
                highest_sequence_id=sequence_id + BATCH - 1,
                schema_version=version,
            )
            producer.send(sequence_id, build_entry(metadata, made[number % BODIES]), BATCH)
        producer.flush()


def _median(run: Callable[[], object], seconds: float) -> float:
    taken: list[float] = []
    end_s = time.monotonic() + seconds
    while len(taken) <= RUNS_MIN or time.monotonic() < end_s:
        begun_s = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun_s)
    return statistics.median(taken[1:])


def _checked(found: Iterable[object], expected: object) -> None:
    if (told := list(found)) != expected:
        raise SystemExit(f"{str(told)[:300]} was read, {str(expected)[:300]} is right")


def run(given: Given) -> dict[str, float]:
    """Fills, offloads and asks; seconds by kind."""
    past, tail = (TopicName.parse(f"bench_{name}_{uuid4().hex[:8]}") for name in ("past", "tail"))
    tail_rows = given.amount // 10

    def connect() -> Client:
        return Client(given.service_url, admin_url=given.http_url)

    with connect() as client:
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        client.admin.call("POST", f"/admin/v2/namespaces/{past.tenant}/{past.namespace}/retention", kept)
        fill(client, past, given.amount)
        files = offload(client, past)
        fill(client, tail, tail_rows)

    def rows_of(text: str) -> list[tuple[object, ...]]:
        with Query(text, connect, QueryLimits(), admin_given=True) as query:
            _, batches = query.rows()
            return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def command(text: str) -> None:
        arguments = [sys.executable, "-m", "magnetar", "sql", "--quiet", text]
        environment = {**os.environ, "MAGNETAR_URL": given.service_url, "MAGNETAR_ADMIN_URL": given.http_url}
        subprocess.run(arguments, env=environment, check=True, stdout=subprocess.DEVNULL)

    listed = ", ".join(f"'{path}'" for path in files)
    bare = duckdb.connect()

    def on_files(text: str) -> list[tuple[object, ...]]:
        return bare.execute(text).fetchall()

    each_s = given.seconds / 8
    count, total = f"SELECT count(*) FROM {past.local}", AGGREGATE.format("", past.local)
    of_files = AGGREGATE.format("value.", f"read_parquet([{listed}])")
    _checked(rows_of(count), [(given.amount,)])
    _checked(rows_of(f"SELECT count(*) FROM {tail.local}"), [(tail_rows,)])
    _checked(rows_of(total), on_files(of_files))
    results = {
        "files": float(len(files)),
        "count_s": _median(lambda: rows_of(count), each_s),
        "bare_count_s": _median(lambda: on_files(f"SELECT count(*) FROM read_parquet([{listed}])"), each_s),
        "aggregate_s": _median(lambda: rows_of(total), each_s),
        "bare_aggregate_s": _median(lambda: on_files(of_files), each_s),
        "tail_count_s": _median(lambda: rows_of(f"SELECT count(*) FROM {tail.local}"), each_s),
        "tail_aggregate_s": _median(lambda: rows_of(AGGREGATE.format("", tail.local)), each_s),
        "exec_count_s": _median(lambda: command(count), each_s),
        "exec_aggregate_s": _median(lambda: command(total), each_s),
    }
    results["exec_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    results["exec_tail_aggregate_s"] = _median(lambda: command(AGGREGATE.format("", tail.local)), each_s)
    results["exec_tail_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    results["aggregate_times_bare"] = results["aggregate_s"] / results["bare_aggregate_s"]
    return results


if __name__ == "__main__":
    main(__doc__, Amount("rows", 10_000_000, "rows of history (%(default)s)"), 60.0, run, form=",.3f")
