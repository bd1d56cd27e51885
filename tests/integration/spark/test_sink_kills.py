"""The sink in a process that is killed at random moments, again and again.

The short form runs always, `MAGNETAR_KILL_ROUNDS=500` makes it long; with a real Spark it is
tests/e2e/test_spark_kill.py.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.targets import target_partitions
from support.sink_job import value_of
from support.spark_kills import values_of_partition
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process

ROUNDS = int(os.environ.get("MAGNETAR_KILL_ROUNDS", "12"))
SEED = int(os.environ.get("MAGNETAR_KILL_SEED", "1"))
ROWS_PER_ROUND = 400
PAUSE_S_MAX = 0.5
"""A start writes several batches in that time: the kill comes anywhere in one."""
DEADLINE_S = 300
JOB = Path(__file__).parents[2] / "support" / "sink_job.py"


def test_no_row_is_lost_or_doubled(standalone: StandaloneProcess, tmp_path: Path) -> None:
    topic = f"kills-{os.getpid()}"
    standalone.admin("PUT", f"persistent/public/default/{topic}/partitions", 3)
    chosen = random.Random(SEED)
    rows = ROUNDS * ROWS_PER_ROUND
    given = {
        "service_url": standalone.broker_url,
        "admin_url": standalone.http_url,
        "topic": topic,
        "state": str(tmp_path),
        "rows": str(rows),
    }
    kills = 0
    while True:
        with subprocess.Popen([sys.executable, str(JOB), json.dumps(given)], stdout=subprocess.PIPE) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == b"ready\n"
            if kills < ROUNDS:
                time.sleep(chosen.uniform(0, PAUSE_S_MAX))
                job.kill()
            code = job.wait(DEADLINE_S)
        if code == 0:
            break
        assert code < 0, "ended by an error"
        kills += 1
    found: Counter[str] = Counter()
    with Client(standalone.broker_url, admin_url=standalone.http_url) as client:
        for partition in target_partitions(client, TopicName.parse(topic)).values():
            values = values_of_partition(client, partition)
            found.update(values)
            for key in {value[-1] for value in values}:
                held = [value for value in values if value[-1] == key]
                assert held == sorted(held)
    expected = Counter(value_of(row) for row in range(rows))
    lost, doubled = expected - found, found - expected
    print(f"seed {SEED}: {kills} killed, {rows} rows, {lost.total()} lost, {doubled.total()} doubled")
    assert (lost, doubled) == (Counter(), Counter())
