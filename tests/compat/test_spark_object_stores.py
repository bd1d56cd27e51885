"""Spark reads offloaded history from real object stores by itself: the broker is asked for the tail alone."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.spark.source import MagnetarSource
from magnetar.tables import broker_entries
from magnetar.tiered.stores import ranges
from support.history_topics import KEEP_EVERYTHING, HistoryTopic
from support.object_stores import SERVERS
from support.spark_queries import batch_rows, options, plain, publish, rows_of, schema_of
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.one_process("history")]

DEADLINE_S = 120
EVERYTHING = {"columns": ",".join((*COLUMN_TYPES, *EXTRA_TYPES))}

JOB = """
import sys
from magnetar.spark import session
spark = session("history in a store")
frame = spark.read.format("magnetar").option("service.url", sys.argv[1]).option("topic", sys.argv[2]).load()
print("PLAN", frame._jdf.queryExecution().toString())
print("ROWS", frame.count(), frame.selectExpr("sum(length(value))").first()[0])
spark.stop()
"""
TABLE_JOB = """
import sys
from magnetar.spark import session, table
spark = session("a table over a store")
frame = table(spark, sys.argv[2], service_url=sys.argv[1])
print("SCANNED", "FileScan parquet" in frame._jdf.queryExecution().toString())
print("ROWS", frame.count(), frame.selectExpr("sum(length(value))").first()[0])
spark.stop()
"""


@pytest.mark.parametrize("server", SERVERS)
def test_history_is_read_from_the_store(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with SERVERS[server](tmp_path / server) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        ranges._cloud.cache_clear()
        environment = {**KEEP_EVERYTHING, **store.environment, "MAGNETAR_OFFLOAD_URL": store.url}
        with StandaloneProcess(tmp_path / "standalone", environment=environment) as process:
            history = HistoryTopic(process)
            history.fill_ledger(200)
            before = batch_rows(process, history.topic, **EVERYTHING)
            history.offload()
            history.delete_local()
            publish(process, history.topic, [plain("tail")])
            source = MagnetarSource(options(process, history.topic, **EVERYTHING))
            reader = source.reader(schema_of(source))
            partitions = reader.partitions()
            asked = []
            from_broker = broker_entries.read_range

            def read_range(client: Any, name: Any, start: Any, end: Any, **limits: Any) -> Any:
                asked.append((start.entry_id, end.entry_id))
                return from_broker(client, name, start, end, **limits)

            with monkeypatch.context() as patched:
                patched.setattr(broker_entries, "read_range", read_range)
                task = pickle.dumps(reader)
                rows = rows_of(task, partitions)
            assert rows[:200] == before
            assert rows[200]["value"] == b"tail"
            assert asked == [(0, 1)], "entries of files were asked of the broker"
            told = [task, *(pickle.dumps(each) for each in partitions), process.log_text().encode()]
            if store.secret:
                assert all(store.secret.encode() not in each for each in told)
                assert store.secret not in caplog.text


@pytest.mark.parametrize(
    ("server", "job", "expected"),
    [
        ("minio", JOB, "PLAN"),
        # Spark brings Hadoop's file system for HDFS, and none for S3: there the source reads.
        ("minio", TABLE_JOB, "SCANNED False"),
        ("hadoop", TABLE_JOB, "SCANNED True"),
    ],
    ids=["minio", "minio-table", "hadoop-table"],
)
def test_a_job_shows_no_credentials(server: str, job: str, expected: str, tmp_path: Path) -> None:
    """A real Spark: neither in the plan nor in what it prints."""
    with SERVERS[server](tmp_path / server) as store:
        environment = {**KEEP_EVERYTHING, **store.environment, "MAGNETAR_OFFLOAD_URL": store.url}
        with StandaloneProcess(tmp_path / "standalone", environment=environment) as process:
            history = HistoryTopic(process)
            history.fill_ledger(200)
            history.offload()
            history.delete_local()
            size = sum(len(seen.data) for seen in history.read())
            program = tmp_path / "job.py"
            program.write_text(job)
            ended = subprocess.run(
                [sys.executable, str(program), process.http_url, history.topic],
                capture_output=True,
                text=True,
                env={**os.environ, **store.environment},
                timeout=DEADLINE_S,
            )
            said = ended.stdout + ended.stderr
            assert f"ROWS 200 {size}" in said, said
            assert expected in said
            assert not store.secret or all(value not in said for value in store.environment.values())
            assert "is read by the broker" not in said


def test_wrong_credentials_are_told_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be opened is the broker's: all rows come, and the log says why without the secret."""
    with SERVERS["minio"](tmp_path / "minio") as store:
        environment = {**KEEP_EVERYTHING, **store.environment, "MAGNETAR_OFFLOAD_URL": store.url}
        with StandaloneProcess(tmp_path / "standalone", environment=environment) as process:
            history = HistoryTopic(process)
            history.fill_ledger(200)
            before = batch_rows(process, history.topic)
            history.offload()
            history.delete_local()
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-0123456789")
            ranges._cloud.cache_clear()
            with caplog.at_level(logging.WARNING):
                assert batch_rows(process, history.topic) == before
            ranges._cloud.cache_clear()
            assert "is read by the broker" in caplog.text
            assert "wrong-secret" not in caplog.text
            assert "somebody-else" not in caplog.text
