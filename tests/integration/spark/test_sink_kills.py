"""The sink in a process that is killed at random moments, again and again.

The short form runs always, `MAGNETAR_KILL_ROUNDS=500` makes it long; with a real Spark it is
tests/e2e/test_spark_kill.py.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.targets import target_partitions
from support.sink_job import value_of
from support.spark_kills import values_of_partition
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("kills")]

ROUNDS = int(os.environ.get("MAGNETAR_KILL_ROUNDS", "12"))
BROKER_ROUNDS = int(os.environ.get("MAGNETAR_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("MAGNETAR_KILL_SEED", "1"))
ROWS_PER_ROUND = 400
PAUSE_S_MAX = 0.5
"""A start writes several batches in that time: the kill comes anywhere in one."""
DEADLINE_S = 300
JOB = Path(__file__).parents[2] / "support" / "sink_job.py"


def test_no_row_is_lost_or_doubled(standalone: StandaloneProcess, tmp_path: Path) -> None:
    kills = 0
    chosen = random.Random(SEED)
    job = Job(standalone, tmp_path, f"kills-{os.getpid()}", ROUNDS)
    while True:
        with job.started() as process:
            if kills < ROUNDS:
                time.sleep(chosen.uniform(0, PAUSE_S_MAX))
                process.kill()
            code = process.wait(DEADLINE_S)
        if code == 0:
            break
        assert code < 0, "ended by an error"
        kills += 1
    job.check(f"seed {SEED}: {kills} killed")


def test_brokers_that_are_killed_while_a_sink_commits(tmp_path: Path) -> None:
    """The broker dies and comes back at the same address while a job writes; at times the job dies too."""
    chosen = random.Random(SEED)
    environment = {"MAGNETAR_INACTIVE_TOPIC_DELETION": "false"}
    standalone = StandaloneProcess(tmp_path / "standalone", environment=environment).start()
    address = (str(urlsplit(url).port) for url in (standalone.broker_url, standalone.http_url))
    options = tuple(itertools.chain(*zip(("--port", "--http-port"), address, strict=True)))
    job = Job(standalone, tmp_path, "broker-kills", BROKER_ROUNDS)
    kills: Counter[str] = Counter()
    try:
        while True:
            with job.started() as process:
                while process.poll() is None and kills["broker"] < BROKER_ROUNDS:
                    time.sleep(chosen.uniform(0.1, PAUSE_S_MAX))
                    standalone.kill()
                    standalone = StandaloneProcess(
                        tmp_path / "standalone", environment=environment, options=options
                    ).start()
                    kills["broker"] += 1
                    if chosen.random() < 0.3:
                        process.kill()
                        kills["job"] += 1
                code = process.wait(DEADLINE_S)
            if code == 0:
                break
            assert code < 0, "ended by an error"
        job.check(f"seed {SEED}: {dict(kills)} killed")
    finally:
        standalone.kill()


class Job:
    """A process that writes through the sink, batch after batch, as often as it is started."""

    def __init__(self, standalone: StandaloneProcess, folder: Path, topic: str, rounds: int) -> None:
        standalone.admin("PUT", f"persistent/public/default/{topic}/partitions", 3)
        self._standalone = standalone
        self._topic = topic
        self._rows = rounds * ROWS_PER_ROUND
        self._given = {
            "service_url": standalone.broker_url,
            "admin_url": standalone.http_url,
            "topic": topic,
            "state": str(folder),
            "rows": str(self._rows),
        }

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """A start, once it is at work."""
        arguments = [sys.executable, str(JOB), json.dumps(self._given)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process

    def check(self, story: str) -> None:
        """Row by row: each is there once, and keys have kept their order."""
        found: Counter[str] = Counter()
        with Client(self._standalone.broker_url, admin_url=self._standalone.http_url) as client:
            for partition in target_partitions(client, TopicName.parse(self._topic)).values():
                values = values_of_partition(client, partition)
                found.update(values)
                for key in {value[-1] for value in values}:
                    held = [value for value in values if value[-1] == key]
                    assert held == sorted(held)
        expected = Counter(value_of(row) for row in range(self._rows))
        lost, doubled = expected - found, found - expected
        print(f"{story}, {self._rows} rows, {lost.total()} lost, {doubled.total()} doubled")
        assert (lost, doubled) == (Counter(), Counter())
