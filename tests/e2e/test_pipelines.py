"""`magnetar pipeline run`, with programs as users write them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pulsar
import pyarrow.parquet as pq
import pytest

from magnetar.spark.pipelines.declarative import FREE_PORT
from support.spark_topics import fill, numbered, official_client
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

DEADLINE_S = 600.0
RUN = [sys.executable, "-m", "magnetar", "pipeline", "run"]
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
MINUTE_MS = 60_000
FREE = {**os.environ, FREE_PORT: "1"}
"""Sessions of other tests may be under way, and Spark Connect has one port else."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A standalone whose topics stay, however long Spark takes to start."""
    with StandaloneProcess(tmp_path_factory.mktemp("kept")) as process:
        keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        process.admin("POST", "namespaces/public/default/retention", keep)
        yield process


def run(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=folder,
        env=env,
    )


def payloads(standalone: StandaloneProcess, name: str) -> list[dict[str, object]]:
    return [json.loads(text) for text in texts(standalone, name)]


def texts(standalone: StandaloneProcess, name: str) -> list[str]:
    with official_client(standalone) as client:
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(10_000).data().decode())
    return found


def test_the_example_of_the_page(kept: StandaloneProcess, tmp_path: Path) -> None:
    (program, *_) = re.findall(r"```python\n(import sys.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "orders.py").write_text(program)
    now_ms = int(time.time() * 1000)
    with official_client(kept) as client:
        producer = client.create_producer("orders")
        # One ahead of its time, which closes the minutes of those behind it, and one that comes an hour late.
        for minutes, price in ((-20, 1.0), (4, 2.0), (4, 3.0), (5, 5.0), (60, 7.0)):
            body = json.dumps({"item": "tea", "price": price}).encode()
            producer.send(body, event_timestamp=now_ms - minutes * MINUTE_MS)
    metrics = tmp_path / "orders.prom"
    done = run(
        tmp_path,
        f"--metrics-file={metrics}",
        f"--service-url={kept.broker_url}",
        f"--admin-url={kept.http_url}",
        "orders.py",
        kept.broker_url,
        kept.http_url,
        str(tmp_path / "checkpoints"),
    )
    assert done.returncode == 0, done.stderr
    assert "orders.py on local[*], Spark 4." in done.stderr
    assert "aside: 1 batches, 5 rows" in done.stderr
    assert "orders.late 1" in done.stderr
    assert re.search(r"by-minute: \d batches, 5 rows", done.stderr)
    assert "behind persistent://public/default/orders: 0 rows, 0.0 s, 0 B" in done.stderr
    assert 'magnetar_spark_lag_rows{query="aside",topic="persistent://public/default/orders"} 0' in (
        metrics.read_text()
    )
    assert payloads(kept, "orders-late") == [{"item": "tea", "price": 7.0}]
    assert len(payloads(kept, "orders-in-time")) == 4
    assert [(row["item"], row["total"]) for row in payloads(kept, "totals")] == [("tea", 5.0), ("tea", 5.0)]
    assert kept.admin("GET", "schemas/public/default/totals/schema")["type"] == "JSON"


def test_an_error_in_a_query_names_its_line(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from pyspark.sql.functions import udf\n"
        "@udf('int')\n"
        "def invert(value):\n"
        "    return 1 // (value - 1)\n"
        "print('arguments', sys.argv[1:])\n"
        "rows = SparkSession.builder.getOrCreate().readStream.format('rate').load()\n"
        "rows.select(invert('value')).writeStream.format('noop').queryName('inverted').start()\n"
    )
    done = run(tmp_path, "--log-file=spark.log", "job.py", "a", "--b")
    assert done.returncode == 1
    assert done.stdout == "arguments ['a', '--b']\n"
    lines = done.stderr.splitlines()
    assert lines[0].startswith("job.py on local[*]")
    at = lines.index("job.py:6, in invert") if "job.py:6, in invert" in lines else -1
    assert at > 0, done.stderr
    assert lines[at + 1 : at + 4] == [
        "    return 1 // (value - 1)",
        "query inverted",
        "ZeroDivisionError: integer division or modulo by zero",
    ]
    # How many batches come before the one that fails is up to the source and its clock.
    assert [line for line in lines if re.match(r"inverted: \d+ batches, \d+ rows", line)]
    assert not [line for line in lines if line.lstrip().startswith("at ")], "no stack of Java's"
    assert "ZeroDivisionError" in (tmp_path / "spark.log").read_text()


def test_an_interrupted_run_stops_its_queries(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from pyspark.sql import SparkSession\n"
        "rows = SparkSession.builder.getOrCreate().readStream.format('rate').load()\n"
        "rows.writeStream.format('noop').queryName('endless').option('checkpointLocation', 'state').start()\n"
    )
    process = subprocess.Popen([*RUN, "job.py"], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        commits = tmp_path / "state" / "commits"
        wait_until(lambda: (commits / "1").exists() or process.poll() is not None, DEADLINE_S, "working")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Stopped." in said
    assert "Traceback" not in said


CONNECT = """
import sys, time
from magnetar.spark.session import prepare
prepare("local[2]")
from pyspark.sql import SparkSession
from magnetar.spark.progress import LagListener
cluster = {"service.url": sys.argv[1], "admin.url": sys.argv[2]}
spark = SparkSession.builder.remote("local[2]").getOrCreate()
listener = LagListener(connection=cluster)
spark.streams.addListener(listener)
rows = spark.readStream.format("magnetar").options(**cluster, topic="remote", maxRowsPerTrigger="10")
copied = rows.option("startingOffsets", "earliest").load().select("value").writeStream.queryName("copied")
target = copied.format("magnetar").options(**cluster, topic="copied", checkpointLocation=sys.argv[3])
target.trigger(availableNow=True).start().awaitTermination()
while sum(totals.rows for totals in listener.totals()) < 30:
    time.sleep(0.1)
print(listener.totals()[0].lines())
spark.stop()
"""


def test_lag_and_the_sink_in_a_connect_session(kept: StandaloneProcess, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    pytest.importorskip("zstandard")
    fill(kept, "remote", numbered(30))
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, kept.broker_url, kept.http_url, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=FREE,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "copied: 3 batches, 30 rows" in done.stdout
    assert "behind persistent://public/default/remote: 0 rows, 0.0 s, 0 B" in done.stdout


def test_a_declarative_project_runs_twice(kept: StandaloneProcess, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    pytest.importorskip("yaml")
    fill(kept, "bronze", numbered(30))
    (tmp_path / "flows").mkdir()
    cluster = {"service.url": kept.broker_url, "admin.url": kept.http_url}
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: copies\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: flows/**\n"
    )
    (tmp_path / "flows" / "copy.py").write_text(
        "from pyspark import pipelines as dp\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.active()\n"
        f"cluster = {cluster}\n"
        "dp.create_sink('silver', 'magnetar', {**cluster, 'topic': 'silver'})\n"
        "def bronze():\n"
        "    rows = spark.readStream.format('magnetar').options(**cluster, topic='bronze')\n"
        "    return rows.option('startingOffsets', 'earliest').load().select('value', 'key')\n"
        "@dp.append_flow(target='silver')\n"
        "def copy():\n"
        "    return bronze()\n"
        "@dp.table\n"
        "def kept():\n"
        "    return bronze()\n"
        "@dp.materialized_view\n"
        "def seen():\n"
        "    rows = spark.read.format('magnetar').options(**cluster, topic='bronze').load()\n"
        "    return rows.selectExpr('count(*) AS rows')\n"
    )
    expected = numbered(30)
    for _ in range(2):
        done = run(tmp_path, "--log-file", str(tmp_path / "spark.log"), str(tmp_path), env=FREE)
        assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "spark.log").read_text()[-2000:]
        assert sorted(texts(kept, "silver")) == expected
        counted = pq.read_table(tmp_path / "spark-warehouse" / "seen")
        assert counted["rows"].to_pylist() == [len(expected)]
        fill(kept, "bronze", numbered(10, 30))
        expected = numbered(40)
    files = (tmp_path / "spark-warehouse" / "kept").glob("*.parquet")
    values = [row.decode() for file in files for row in pq.read_table(file)["value"].to_pylist()]
    assert sorted(values) == numbered(40)
    assert os.listdir(tmp_path / "storage")
