"""Where transactions run, and what is killed there: one broker, one with bookies, or brokers of a cluster."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.request import urlopen

_TESTS: Final = str(Path(__file__).parents[2] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
from support import (  # type: ignore[import-not-found]  # noqa: E402  # needs the path above
    broker_clusters,
    standalone,
)

standalone.START_DEADLINE_S = 300.0
"""A start on a machine that is busy with other things."""

KINDS: Final = ("standalone", "bookies", "etcd", "zk")
_ON: Final = {"MAGNETAR_TRANSACTIONS": "true"}
_BROKERS: Final = 3
_BOOKIES: Final = 3
_CALL_S: Final = 15.0


class Place(Protocol):
    """Brokers that serve transactions."""

    every_s: float
    """Seconds between kills, on average, when nothing else is wanted."""

    def where(self, topic: str) -> str:
        """URL of the broker of a topic. Raises OSError."""

    def strike(self, chance: random.Random, topics: tuple[str, ...]) -> str:
        """Kills a process with SIGKILL and starts it, or another one, again; what was killed."""

    def kill_all(self) -> None:
        """Kills all brokers, and starts as many."""

    def admin(self, path: str) -> Any:
        """The answer of a call below /admin/. Raises OSError."""


def _get(url: str) -> Any:
    with urlopen(url, timeout=_CALL_S) as answer:
        return json.load(answer)


class OneBroker:
    """`magnetar standalone`, with its own store or with bookies beside it."""

    every_s = 2.0

    def __init__(self, process: Any, *, bookies: bool) -> None:
        self._process = process
        self._bookies = bookies

    def where(self, topic: str) -> str:
        return str(self._process.broker_url)

    def strike(self, chance: random.Random, topics: tuple[str, ...]) -> str:
        if self._bookies and chance.random() < 0.3:
            found = [pid for pid in _children(self._process.pid) if _runs(pid, "local_bookie")]
            if found:
                os.kill(chance.choice(found), signal.SIGKILL)
                return "bookie"
        self.kill_all()
        return "broker"

    def kill_all(self) -> None:
        self._process.kill()
        self._process.start()

    def admin(self, path: str) -> Any:
        return _get(f"{self._process.http_url}/admin/{path}")


def _children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(each.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(each.parent.name))
    return found


def _runs(pid: int, module: str) -> bool:
    try:
        return module in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


class Cluster:
    """Three brokers and three bookies on etcd or ZooKeeper."""

    every_s = 5.0

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._running: list[Any] = [cluster.start_broker(environment=_ON) for _ in range(_BROKERS)]

    def where(self, topic: str) -> str:
        return str(self._look_up(topic)["brokerUrl"])

    def _look_up(self, topic: str) -> Any:
        # Any of those that run, so that each is asked at times.
        asked = random.choice(list(self._running))
        return _get(f"{asked.http_url}/lookup/v2/topic/{topic.replace('://', '/')}")

    def strike(self, chance: random.Random, topics: tuple[str, ...]) -> str:
        if chance.random() < 0.2:
            bookie = chance.choice(self._cluster.bookies)
            bookie.kill()
            bookie.begin()
            bookie.wait()
            return "bookie"
        name, topic = "a topic's broker", chance.choice(topics)
        if chance.random() < 0.5:
            number = chance.randrange(4)
            topic = f"persistent://pulsar/system/transaction_coordinator_assign-partition-{number}"
            name = "a coordinator's broker"
        try:
            url = self.where(topic)
        except OSError:
            name, url = "any broker", chance.choice(self._running).broker_url
        found = [each for each in self._running if each.broker_url == url]
        self._kill(found[:1] or self._running[:1])
        return name

    def _kill(self, killed: list[Any]) -> None:
        self._running = [each for each in self._running if each not in killed]
        for each in killed:
            each.kill()
        for _ in killed:
            self._running.append(self._cluster.start_broker(environment=_ON))

    def kill_all(self) -> None:
        self._kill(list(self._running))

    def admin(self, path: str) -> Any:
        return _get(f"{self._running[0].http_url}/admin/{path}")


@contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """What `kind` names, which ends with the context. Raises `support.drivers.NotHereError` where the
    metadata service cannot be had."""
    if kind in ("etcd", "zk"):
        with broker_clusters.broker_cluster(folder, kind=kind, bookies=_BOOKIES) as cluster:
            yield Cluster(cluster)
        return
    bookies = kind == "bookies"
    options = ("--bookies", str(_BOOKIES if bookies else 0))
    process = standalone.StandaloneProcess(folder, environment=_ON, options=options)
    with process:
        yield OneBroker(process, bookies=bookies)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came to hold within that time. What cannot be asked does not hold yet."""

    def holds() -> bool:
        with suppress(OSError, KeyError):
            return condition()
        return False

    try:
        standalone.wait_until(holds, seconds, "it holds")
    except AssertionError:
        return False
    return True
