"""Tables as readers see them that others wrote: Spark, ClickHouse, DuckDB, over two kinds of catalog.

Run by `./dev compat iceberg`, which brings them along; skipped without.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic
from support.java_client import class_path
from support.standalone import StandaloneProcess, wait_until

PYTHON = os.environ.get("MAGNETAR_ICEBERG_PYTHON", "")

pytestmark = [
    pytest.mark.one_process("history"),
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="./dev compat iceberg brings the readers along"),
]

HERE = Path(__file__).parent
TOPIC = "persistent://public/default/Sensors.v1"
TABLE = ("public__default", "Sensors_x002e_v1")


class First(Record):
    name = String()
    level = Integer()
    place = String(required_default=True)


class Second(Record):
    name = String()
    level = Integer()
    unit = String(required_default=True)


def read_with(program: str, *arguments: str) -> dict[str, Any]:
    return run(f"read_with_{program}.py", *arguments)


def run(program: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, str(HERE / program), *arguments],
        # ClickHouse reads nothing outside of the working folder.
        cwd="/",
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return found


class Sensors:
    """A topic with two partitions and two versions of its schema, offloaded."""

    def __init__(self, process: StandaloneProcess) -> None:
        self.process = process
        process.admin("PUT", f"{TOPIC.replace('://', '/')}/partitions", 2)
        self.partitions = [HistoryTopic(process, f"{TOPIC}-partition-{number}") for number in range(2)]
        client = self.partitions[0].client()
        for kind in (First, Second):
            extra = "place" if kind is First else "unit"
            for number, partition in enumerate(self.partitions):
                producer = client.create_producer(partition.topic, schema=AvroSchema(kind))
                for level in range(5):
                    value = kind(name=f"s{number}", level=level, **{extra: "m"})
                    producer.send(value, partition_key=f"k{level}")
                producer.close()
                process.admin("PUT", f"{partition.path}/unload")
                # Before there is another version: files have the fields of the newest one.
                partition.offload()
        client.close()
        wait_until(self.complete, DEADLINE_S, "the table complete")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.process.admin("GET", f"{TOPIC.replace('://', '/')}/lake")
        return found

    def complete(self) -> bool:
        try:
            status = self.status()
        except urllib.error.HTTPError:
            return False
        return bool(status["upToDate"]) and status["files"] == 4

    def merge(self) -> None:
        """Two files more in each partition, and then one of all with the newest schema."""
        for number, partition in enumerate(self.partitions):
            client = partition.client()
            producer = client.create_producer(partition.topic, schema=AvroSchema(Second))
            for _ in range(2):
                for level in range(5):
                    producer.send(Second(name=f"s{number}", level=level, unit="m"), partition_key=f"k{level}")
                self.process.admin("PUT", f"{partition.path}/unload")
            client.close()
            partition.offload()
            partition.delete_local()
            self.process.admin("POST", f"{partition.path}/lake/merge")
            wait_until(partial(self._merged, partition), DEADLINE_S, "merged")
        wait_until(self.complete, DEADLINE_S, "the table has the merged files")

    def _merged(self, partition: HistoryTopic) -> bool:
        job = self.process.admin("GET", f"{partition.path}/lake/merge")
        assert job["status"] in ("RUNNING", "SUCCESS"), job
        return bool(job["status"] == "SUCCESS")

    def consumed(self) -> list[dict[str, Any]]:
        """What consumers get, as readers of the table are to see it."""
        rows = []
        for number, partition in enumerate(self.partitions):
            client = partition.client()
            reader = client.create_reader(partition.topic, pulsar.MessageId.earliest)
            count = 0
            while reader.has_message_available():
                message = reader.read_next(int(DEADLINE_S * 1000))
                kind = First if count < 5 else Second
                value = AvroSchema(kind).decode(message.data())
                where = message.message_id()
                rows.append(
                    {
                        "partition": number,
                        "ledger_id": where.ledger_id(),
                        "entry_id": where.entry_id(),
                        "batch_index": where.batch_index(),
                        "key": message.partition_key(),
                        "value": {
                            name: getattr(value, name, None) for name in ("name", "level", "unit", "place")
                        },
                        "publish_ms": message.publish_timestamp(),
                    }
                )
                count += 1
            client.close()
        return rows


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the fields of `value` in one order."""
    return [{**row, "value": dict(sorted(row["value"].items()))} for row in rows]


def spark_jars() -> str:
    folder = Path(class_path(HERE / "spark").removesuffix("/*"))
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


@pytest.fixture(scope="module")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sensors]:
    """With the catalog in a file of the data folder."""
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    with StandaloneProcess(tmp_path_factory.mktemp("sql") / "s", environment=environment) as process:
        yield Sensors(process)


def test_spark(sensors: Sensors) -> None:
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{sensors.process.data_dir / 'lake' / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{sensors.process.data_dir}/offloaded/magnetar-lake",
    }
    found = read_with("spark", spark_jars(), ".".join(TABLE), json.dumps(settings))
    assert plain(found["rows"]) == plain(sensors.consumed())
    assert (found["pruned"], found["filtered"]) == (10, 8)
    assert (found["snapshots"], found["files"]) == (sensors.status()["snapshots"], 4)


def maintained(sensors: Sensors, settings: dict[str, Any]) -> None:
    """Spark's procedures of maintenance leave every message where it is."""
    before = sensors.consumed()
    assert len(before) == 20
    for partition in sensors.partitions:
        # From here on the objects are the only copy.
        partition.delete_local()
    objects = sorted((sensors.process.data_dir / "offloaded" / "public").rglob("*.parquet"))
    assert len(objects) == 4
    found = run("maintain_with_spark.py", spark_jars(), ".".join(TABLE), json.dumps(settings))
    assert "rewritten_data_files_count" in found["rewrite"], found
    for what in ("expire", "orphans", "purge"):
        assert "GC is disabled" in found[what] or "gc.enabled" in found[what], found
    assert [path for path in objects if not path.exists()] == []
    # The look at all tables, soon after a start, puts back what the rewrite took out.
    assert not sensors.complete()
    sensors.process.stop()
    sensors.process.start()
    wait_until(sensors.complete, DEADLINE_S, "the table has the files of the list again")
    assert "was changed by another program" in sensors.process.log_text()
    assert sensors.consumed() == before


def test_maintenance_over_sql(tmp_path: Path) -> None:
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    with StandaloneProcess(tmp_path / "s", environment=environment) as process:
        settings = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{process.data_dir / 'lake' / 'catalog.db'}",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{process.data_dir}/offloaded/magnetar-lake",
        }
        maintained(Sensors(process), settings)


def test_maintenance_over_rest(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as url:
        environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": url}
        with StandaloneProcess(tmp_path / "s", environment=environment) as process:
            maintained(Sensors(process), {"type": "rest", "uri": url})


def test_clickhouse(sensors: Sensors) -> None:
    found = read_with("clickhouse", sensors.status()["location"].removeprefix("file://"))
    assert plain(found["rows"]) == plain(sensors.consumed())


def test_duckdb_over_the_files_that_pyiceberg_finds(sensors: Sensors) -> None:
    found = read_with("duckdb", sensors.status()["metadataLocation"], "arrow")
    assert plain(found["rows"]) == plain(sensors.consumed())


def test_duckdb_by_its_own_reader(sensors: Sensors) -> None:
    try:
        found = read_with("duckdb", sensors.status()["metadataLocation"], "extension")
    except AssertionError as error:
        if "Failed to download extension" not in str(error):
            raise
        pytest.skip("DuckDB's extension cannot be downloaded here")
    assert plain(found["rows"]) == plain(sensors.consumed())


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Apache Iceberg's own REST catalog; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {
        **os.environ,
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_REST_PORT": str(port),
    }
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        class_path(HERE / "rest"),
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]
    with (folder / "rest.log").open("wb") as log:
        server = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:

        def answers() -> bool:
            assert server.poll() is None, (folder / "rest.log").read_text()
            try:
                urllib.request.urlopen(f"{url}/v1/config", timeout=5).close()
            except OSError:
                return False
            return True

        wait_until(answers, DEADLINE_S, "the REST catalog answers")
        yield url
    finally:
        server.kill()
        server.wait()


def test_a_rest_catalog(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as url:
        environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": url}
        with StandaloneProcess(tmp_path / "s", environment=environment) as process:
            sensors = Sensors(process)
            found = read_with(
                "spark", spark_jars(), ".".join(TABLE), json.dumps({"type": "rest", "uri": url})
            )
            assert plain(found["rows"]) == plain(sensors.consumed())
            assert (found["pruned"], found["files"]) == (10, 4)
            sensors.merge()
            settings = json.dumps({"type": "rest", "uri": url})
            found = read_with("spark", spark_jars(), ".".join(TABLE), settings)
            assert plain(found["rows"]) == plain(sensors.consumed())
            assert (found["pruned"], found["files"]) == (20, 4)
            found = read_with("clickhouse", sensors.status()["location"].removeprefix("file://"))
            assert plain(found["rows"]) == plain(sensors.consumed())
            found = read_with("duckdb", sensors.status()["metadataLocation"], "arrow")
            assert plain(found["rows"]) == plain(sensors.consumed())
            process.admin("DELETE", f"{TOPIC.replace('://', '/')}/partitions?force=true")
            wait_until(lambda: not sensors_exist(process), DEADLINE_S, "the table dropped")


def sensors_exist(process: StandaloneProcess) -> bool:
    return bool(process.admin("GET", "lake")["tables"])
