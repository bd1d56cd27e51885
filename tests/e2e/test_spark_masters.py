"""The same job, with all that a connector must stand, in Spark Classic, in Spark Connect, and on a cluster of
a master and two workers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import spark_story
from support.spark_cluster import SparkCluster
from support.spark_queries import batched, publish
from support.spark_topics import new_topic, numbered
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

DEADLINE_S = 1_200.0
"""Over Spark Connect a story takes 80 s, and beside eight busy loops 600."""


@pytest.fixture(scope="module", autouse=True)
def kept(standalone: StandaloneProcess) -> Iterator[None]:
    """Topics without clients for a minute stay, as on a busy machine a session takes its time."""
    path = "namespaces/public/default/retention"
    standalone.admin("POST", path, {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    yield
    standalone.admin("DELETE", path)


def run_story(standalone: StandaloneProcess, master: str, folder: Path) -> dict[str, Any]:
    topic, target = new_topic(standalone, partitions=2), new_topic(standalone, partitions=1)
    for number in range(2):
        entries = [batched(*numbered(10, 100 * number + first)) for first in range(0, 100, 10)]
        publish(standalone, f"{topic}-partition-{number}", entries)
    where = [standalone.broker_url, standalone.http_url, topic, target, str(folder)]
    command = [sys.executable, spark_story.__file__, master, *where]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    story: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return story


def check(story: dict[str, Any]) -> None:
    assert len(story["accepted"]) == 8
    assert story["counted"] == [[0, 100], [1, 100]]
    assert story["rows"] == 200
    # Entries of ten rows are not divided: 60 of at most 70 rows at a time.
    assert story["batches"] == [4, 0]
    assert story["values"] == numbered(200)


@pytest.mark.nightly("the cluster's driver is Spark Classic, and so are the sessions of the other files")
def test_spark_classic(standalone: StandaloneProcess, tmp_path: Path) -> None:
    check(run_story(standalone, "local[2]", tmp_path))


def test_spark_connect(standalone: StandaloneProcess, tmp_path: Path) -> None:
    missing = [
        name for name in ("grpc", "grpc_status", "zstandard") if importlib.util.find_spec(name) is None
    ]
    if missing:
        pytest.skip(f"Spark Connect needs {', '.join(missing)}")
    check(run_story(standalone, "connect", tmp_path))


def test_a_master_with_two_workers(standalone: StandaloneProcess, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with SparkCluster(folder) as cluster:
        check(run_story(standalone, cluster.master, tmp_path))
