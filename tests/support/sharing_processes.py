"""Broker processes that share a port: which there are, and load that notes what was acknowledged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pulsar

from support.broker_clusters import lookup
from support.official import QUIET
from support.standalone import ADMIN_DEADLINE_S, StandaloneProcess, wait_until

TOPIC = "persistent://public/default/"


def is_there(pid: int) -> bool:
    """Whether a broker process, or the storage process, has this id."""
    try:
        program = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b".broker_process" in program or b".storage_process" in program
    except FileNotFoundError:
        # It has ended.
        return False


def processes(broker: StandaloneProcess) -> list[dict[str, Any]]:
    """What the ready file tells of each process."""
    found: list[dict[str, Any]] = json.loads((broker.folder / "ready.json").read_text())["processes"]
    return found


def process_of(broker: StandaloneProcess, topic: str) -> dict[str, Any]:
    """The process that has a topic."""
    return _named_by(broker, lambda: lookup(broker, topic))


def coordinator_of(broker: StandaloneProcess, number: int = 0) -> dict[str, Any]:
    """The process that has a coordinator of transactions."""
    name = f"pulsar/system/transaction_coordinator_assign-partition-{number}"

    def look_up() -> dict[str, Any]:
        place = f"{broker.http_url}/lookup/v2/topic/persistent/{name}"
        with urlopen(place, timeout=ADMIN_DEADLINE_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    return _named_by(broker, look_up)


def _named_by(broker: StandaloneProcess, look_up: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The process that a look-up names, which is asked again while processes are being replaced."""
    found: list[dict[str, Any]] = []

    def asked() -> bool:
        with suppress(OSError):
            url = look_up()["brokerUrl"]
            found.extend(each for each in processes(broker) if each["broker_url"] == url)
        return bool(found)

    wait_until(asked, 60, "a process is named")
    return found[0]


def storage_pid(server: StandaloneProcess) -> int:
    """The storage process of a standalone server."""
    return int(json.loads((server.folder / "ready.json").read_text())["storage_pid"])


class Load:
    """Publishes numbers to all topics, and notes what was acknowledged."""

    def __init__(self, client: pulsar.Client, topics: list[str]) -> None:
        self.sent = 0
        self.acknowledged: Counter[str] = Counter()
        self.failed: list[object] = []
        self._producers = {
            topic: client.create_producer(
                TOPIC + topic, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
            )
            for topic in topics
        }

    def send(self) -> None:
        """One more message to each topic; does not wait."""
        for topic, producer in self._producers.items():
            producer.send_async(b"%d" % self.sent, lambda result, _, told=topic: self._told(told, result))
        self.sent += 1

    def _told(self, topic: str, result: pulsar.Result) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged[topic] += 1
        else:
            self.failed.append(result)

    def settle(self) -> None:
        """Returns when everything is acknowledged."""
        wait_until(
            lambda: all(self.acknowledged[topic] == self.sent for topic in self._producers),
            90,
            f"{self.sent} messages of each topic are acknowledged",
        )
        assert self.failed == []


@contextmanager
def connected(broker: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.broker_url, operation_timeout_seconds=60, logger=QUIET)
    yield client
    client.close()


def check_all_there(client: pulsar.Client, topics: list[str], sent: int) -> None:
    """Every topic has every number, and first copies are in order: a client may send one twice."""
    for topic in topics:
        reader = client.create_reader(TOPIC + topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(10_000).data()))
        reader.close()
        assert list(dict.fromkeys(found)) == list(range(sent)), topic
