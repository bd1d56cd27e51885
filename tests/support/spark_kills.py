"""A streaming query whose driver and executors are killed at random moments, and what it leaves behind."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pyspark

from magnetar.arrow.decode import Decoder
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.reader import last_position, read_range
from magnetar.spark.targets import target_partitions
from support.spark_topics import fill
from support.standalone import StandaloneProcess, wait_until

JOB: Final = Path(__file__).with_name("copy_job.py")
DEADLINE_S: Final = 900.0
"""Until a query that was started or hurt has finished another batch."""
ROWS_PER_ROUND: Final = 300
ROWS_PER_BATCH: Final = 20
FAILURES_MAX: Final = 20
"""Drivers that may give up by themselves."""
PAUSE_S_MAX: Final = 1.5
"""Between the sign of life that a round waits for and the kill: a moment anywhere in a batch or two."""

KINDS: Final = ("driver", "executor", "worker", "worker", "executor", "worker")
"""Processes that are killed, in turn: the driver's JVM and Python, which take longest to return; a JVM that
runs tasks; a Python that runs them."""


class KilledQuery:
    """Copies `source` to `target`, each with two partitions, and is killed on the way."""

    def __init__(
        self, standalone: StandaloneProcess, source: str, target: str, folder: Path, seed: int, master: str
    ) -> None:
        self._standalone = standalone
        self._source = source
        self._target = target
        self._folder = folder
        self._random = random.Random(seed)
        self._master = master
        self._driver: subprocess.Popen[bytes] | None = None
        self._rows = 0
        self._starts = 0
        self.kills: Counter[str] = Counter()
        # Topics that no subscription holds are trimmed, and a driver that starts may take its time.
        keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        standalone.admin("POST", "namespaces/public/default/retention", keep)

    def round(self, kind: str) -> None:
        """Gives the query rows, waits until it works, and kills."""
        values = [f"{n:07d}-{n * 7919 % 10}" for n in range(self._rows, self._rows + ROWS_PER_ROUND)]
        fill(self._standalone, self._source, values)
        self._rows += ROWS_PER_ROUND
        if self._driver is None:
            self._start(forever=True)
        while not self._batch_done():
            self._restart_failed()
        time.sleep(self._random.uniform(0, PAUSE_S_MAX))
        if kind == "driver":
            self._kill_driver()
        else:
            mark = "CoarseGrainedExecutorBackend" if kind == "executor" else "pyspark.daemon"
            assert self._driver is not None
            victims = self._descendants(mark)
            if not victims:
                # Gone already, with the last one that was killed.
                return
            os.kill(self._random.choice(victims), signal.SIGKILL)
        self.kills[kind] += 1

    def finish(self) -> None:
        """Kills the driver once more and lets a last one copy what is left."""
        self._kill_driver()
        self._start(forever=False)
        assert self._driver is not None
        while self._driver.wait(DEADLINE_S):
            self._restart_failed(forever=False)
        self._driver = None

    def check(self) -> tuple[int, int, int]:
        """Rows that were sent, that are lost, that are there more than once; keys have kept their order."""
        client = Client(self._standalone.broker_url, admin_url=self._standalone.http_url)
        found: Counter[str] = Counter()
        with client:
            for partition in target_partitions(client, TopicName.parse(self._target)).values():
                values = values_of_partition(client, partition)
                found.update(values)
                by_key: dict[str, list[str]] = {}
                for value in values:
                    by_key.setdefault(value[-1], []).append(value)
                for held in by_key.values():
                    assert held == sorted(held)
        expected = {f"{n:07d}-{n * 7919 % 10}" for n in range(self._rows)}
        assert found.keys() <= expected
        return self._rows, len(expected - found.keys()), sum(count - 1 for count in found.values())

    def close(self) -> None:
        """Leaves no process behind, nor what Spark's workers wrote beside Spark."""
        if self._driver is not None:
            self._kill_driver()
        for application in re.findall(r"app-\d+-\d+", "".join(map(_text, self._folder.glob("*.log")))):
            shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)

    def _last_log(self) -> str:
        """What the last driver printed."""
        return _text(self._folder / f"driver-{self._starts}.log")

    def _start(self, *, forever: bool) -> None:
        given = {
            "master": self._master,
            "service_url": self._standalone.broker_url,
            "admin_url": self._standalone.http_url,
            "source": self._source,
            "target": self._target,
            "checkpoint": str(self._folder / "checkpoint"),
            "rows": str(ROWS_PER_BATCH if forever else 100 * ROWS_PER_BATCH),
            "tasks": str(self._random.randint(1, 4)),
            "inline": self._random.choice(("1", "262144")),
            "forever": "yes" if forever else "",
        }
        self._starts += 1
        with (self._folder / f"driver-{self._starts}.log").open("wb") as log:
            # A session of its own, so that nothing of it is left when its group is killed.
            self._driver = subprocess.Popen(
                [sys.executable, str(JOB), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )

    def _batch_done(self) -> bool:
        """Returns when another batch is done; False when the driver has ended."""
        commits = self._folder / "checkpoint" / "commits"

        def done() -> int:
            names = [path.name for path in commits.glob("[0-9]*")]
            return max((int(name) for name in names if name.isdigit()), default=-1)

        before = done()
        driver = self._driver
        assert driver is not None
        wait_until(
            lambda: done() > before or driver.poll() is not None, DEADLINE_S, "done with another batch"
        )
        return driver.poll() is None

    def _restart_failed(self, *, forever: bool = True) -> None:
        """Starts a driver again that gave up, as a service manager would.

        On a busy machine Spark's own limits of time end queries; each such end is one more restart. An error
        of the sink is none of these.
        """
        log = self._last_log()
        ours = [line for line in log.splitlines() if line.startswith("magnetar.")]
        self.kills["itself"] += 1
        assert not ours, log[-4000:]
        assert self.kills["itself"] <= FAILURES_MAX, log[-4000:]
        self._start(forever=forever)

    def _kill_driver(self) -> None:
        """First the driver alone, so that its executors find themselves without one; then what is left."""
        driver = self._driver
        assert driver is not None
        for pid in [*self._descendants("SparkSubmit"), driver.pid]:
            os.kill(pid, signal.SIGKILL)
        driver.wait(DEADLINE_S)
        self._driver = None
        if self._random.random() < 0.5:
            # At once: tasks of the old start never overlap those of the next.
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _descendants(self, mark: str) -> list[int]:
        """Processes of the driver with `mark` in their command line."""
        assert self._driver is not None
        parents: dict[int, int] = {}
        commands: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    commands[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                parents[int(entry.name)] = int(stat[1])
        family = {self._driver.pid}
        while more := {child for child, parent in parents.items() if parent in family} - family:
            family |= more
        return sorted(pid for pid in family if mark in commands.get(pid, ""))


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def values_of_partition(client: Client, partition: TopicName) -> list[str]:
    """Every row's value, in the order of the partition."""
    last = last_position(client, partition)
    if last is None:
        return []
    decoder = Decoder(partition, ("value",))
    end = Position(last.ledger_id, last.entry_id + 1)
    return [
        value.decode()
        for columns in read_range(client, partition, EARLIEST, end)
        for batch in decoder.decode(columns)
        for value in batch.column(0).to_pylist()
    ]
