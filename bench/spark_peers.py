"""How many rows of 100 B does a PySpark job read a second, and how many over Spark's Kafka source?

    python -m bench.spark_peers [--rows N] [--runs N] [--programs FOLDER] [--json FILE]

Both brokers are local, filled with entries of 100 rows in one partition, and read with `local[2]` in four
tasks, the value alone: into nothing, which rows of Kafka reach without leaving the JVM, and through
`mapInArrow`, as a job does that works on rows in Python. `ceiling` is a Python data source that reads nothing
and hands out batches made before (`spark_ceiling`), in turn with ours. One broker after the other, each alone
on the machine; the first run of each kind warms up. The connector is the newest there is; where it does not
load in the PySpark that is installed, FOLDER/pyspark holds the version that it was made for (`pip install
--target FOLDER/pyspark pyspark==4.2.0`). MAGNETAR_BENCH_PROGRAMS names FOLDER as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame

from bench import machine, spark_kafka_job
from bench.broker import BrokerFailedError, Cpus, magnetar_command, started
from bench.meter import Meter
from bench.peers.servers import SERVERS, fetch_jars
from bench.publisher import Publisher
from bench.spark_ceiling import CeilingSource, frame_of
from bench.spark_read import fill
from bench.throughput import publish_all
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark import session
from magnetar.spark.java import find_java_home

CONNECTOR: Final = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    # Asked for credentials, of which there are none. Newer ones are not in every registry.
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
]
"""The connector, and what it needs beside what PySpark brings."""
BATCH: Final = 100
ROW_BYTES: Final = 100
CEILING_BATCH_ROWS: Final = 20_000
TIMEOUT_S: Final = 900.0


def of_kafka(programs: Path, rows: int, runs: int) -> dict[str, float]:
    """Rows a second by kind, the median."""
    kafka = SERVERS["kafka"]
    kafka.fetch(programs / "kafka")
    fetch_jars(programs / "spark-kafka", None, CONNECTOR, alone=True)
    lib = programs / "spark-kafka" / "lib"
    jars = ",".join(str(jar) for jar in sorted(lib.glob("*.jar")))
    with (
        tempfile.TemporaryDirectory(prefix="bench-peer-") as scratch,
        kafka.started(programs / "kafka", Path(scratch), Cpus(None, None), durable=False) as broker,
    ):
        topic = f"bench-{uuid4().hex[:8]}"
        lane = kafka.driver(broker).lane(topic, payload_bytes=ROW_BYTES, messages_per_entry=BATCH)
        publish_all([Publisher(lane, entries_max=rows // BATCH)], Meter(None))
        arguments = [broker.service_url.rpartition("/")[2], topic, str(rows), str(runs), jars]
        own = programs / "pyspark"
        found = _job(arguments, own if own.exists() else None)
    print(f"PySpark {found['version']} with {CONNECTOR[0][1]} {CONNECTOR[0][2]}", file=sys.stderr)
    return {kind: rows / statistics.median(each) for kind, each in found["seconds"].items()}


def _job(arguments: list[str], own: Path | None) -> dict[str, Any]:
    """Runs the job in a process of its own. Raises BrokerFailedError."""
    home = str(find_java_home(os.environ))
    environment = {
        **os.environ,
        "JAVA_HOME": home,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if own is not None:
        environment |= {"PYTHONPATH": str(own), "SPARK_HOME": str(own / "pyspark")}
    done = subprocess.run(
        [sys.executable, spark_kafka_job.__file__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise BrokerFailedError(f"the job ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def of_magnetar(rows: int, runs: int) -> dict[str, float]:
    """The same of ours."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started(magnetar_command(), Path(folder), Cpus(None, None)) as broker,
        Client(broker.service_url, admin_url=broker.http_url) as client,
    ):
        topic = TopicName.parse(f"bench-{uuid4().hex[:8]}")
        # A Spark session starts slowly, and an unused topic is deleted after a minute.
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        client.admin.call("POST", f"/admin/v2/namespaces/{topic.tenant}/{topic.namespace}/retention", kept)
        fill(client, topic, rows, batch=BATCH)
        spark = session("bench", master="local[2]")
        spark.dataSource.register(CeilingSource)
        where = {
            "service.url": broker.http_url,
            "topic": str(topic),
            "minPartitions": "4",
            "columns": "value",
        }

        def value() -> DataFrame:
            return spark.read.format("magnetar").options(**where).load()

        def ceiling() -> DataFrame:
            return frame_of(spark, kind="value", rows=rows, tasks=4, batch=CEILING_BATCH_ROWS)

        def through(frame: DataFrame) -> DataFrame:
            return frame.mapInArrow(spark_kafka_job.pass_on, "value binary")

        kinds: dict[str, Callable[[], DataFrame]] = {
            "jvm": value,
            "ceiling_jvm": ceiling,
            "python": lambda: through(value()),
            "ceiling_python": lambda: through(ceiling()),
        }
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(runs + 1):
            for kind, frame in kinds.items():
                taken[kind].append(spark_kafka_job.seconds(frame()))
        spark.stop()
    return {kind: rows / statistics.median(each[1:]) for kind, each in taken.items()}


def main() -> None:
    """Command line."""
    default = os.environ.get("MAGNETAR_BENCH_PROGRAMS", "~/.cache/magnetar-bench")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of each topic (5000000)")
    parser.add_argument("--runs", type=int, default=3, help="runs, whose median is shown (3)")
    parser.add_argument("--seconds", type=float, help="taken as every measuring module does; not used")
    parser.add_argument("--programs", type=Path, default=Path(default).expanduser())
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    ours = of_magnetar(arguments.rows, arguments.runs)
    kafka = of_kafka(arguments.programs, arguments.rows, arguments.runs)
    results = {
        "rows_per_s": ours["jvm"],
        "rows_per_s_python": ours["python"],
        "kafka_rows_per_s": kafka["jvm"],
        "kafka_rows_per_s_python": kafka["python"],
        "ceiling_rows_per_s": ours["ceiling_jvm"],
        "ceiling_rows_per_s_python": ours["ceiling_python"],
        "ratio": ours["jvm"] / kafka["jvm"],
        "ratio_python": ours["python"] / kafka["python"],
        "ceiling_ratio": ours["ceiling_jvm"] / kafka["jvm"],
        "ceiling_ratio_python": ours["ceiling_python"] / kafka["python"],
    }
    print(json.dumps(machine.describe(Path(tempfile.gettempdir()))))
    for name, value in results.items():
        print(f"{name:28} {value:14,.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
