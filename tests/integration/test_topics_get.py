"""`magnetar topics get`: a key in offloaded files, in what is not offloaded, in partitions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mmh3
import pulsar
import pytest

pytest.importorskip("pyarrow")

from magnetar.base.names import TopicName
from magnetar.cli.messages.topic_writer import partition_of_key
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.history_topics import KEEP_EVERYTHING, TOPIC, HistoryTopic
from support.official import QUIET
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]

DEADLINE_S = 60


class Command:
    """The command, as a user runs it."""

    def __init__(self, process: StandaloneProcess, folder: Path) -> None:
        mine = {"MAGNETAR_URL": process.broker_url, "MAGNETAR_ADMIN_URL": process.http_url}
        others = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
        self._environment = {**others, **mine, "MAGNETAR_CONTEXTS": str(folder / "contexts.json")}

    def get(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "magnetar", "topics", "get", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=DEADLINE_S,
        )
        assert ended.returncode == code, ended.stderr
        return ended

    def records(self, *arguments: object) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.get(*arguments, "-o", "json").stdout.splitlines()]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("get"), environment=KEEP_EVERYTHING) as running:
        yield running


@pytest.fixture
def command(process: StandaloneProcess, tmp_path: Path) -> Command:
    return Command(process, tmp_path)


def test_a_key_is_found_wherever_its_messages_lie(process: StandaloneProcess, command: Command) -> None:
    """Two ledgers only in files, one in a file and here, one that was not copied; batches and single ones."""
    topic = HistoryTopic(process)
    for _ in range(2):
        topic.fill_ledger(60)
    topic.offload()
    topic.delete_local()
    process.admin("PUT", "namespaces/public/default/offloadDeletionLagMs", 3_600_000)
    topic.fill_ledger(60)
    topic.offload()
    topic.fill_ledger(20)
    numbers = range(topic.sent)
    wanted = [number for number in reversed(numbers) if number % 17 == 3]

    (newest,) = command.records(TOPIC, "--key", "key 3")
    assert newest["properties"] == {"number": str(wanted[0])}
    found = command.records(TOPIC, "--key", "key 3", "--all")
    assert [each["properties"] for each in found] == [{"number": str(number)} for number in wanted]
    assert [each["event_time"] for each in found] == [number + 1 for number in wanted]
    assert [str(each["value"]) for each in found] == [f"{number} " * 40 for number in wanted]
    by_index = {seen.properties: seen for seen in topic.read()}
    for each in found:
        seen = by_index[tuple(sorted(dict(each["properties"]).items()))]  # type: ignore[call-overload]
        ledger, entry, *rest = str(each["id"]).split(":")
        assert (int(ledger), int(entry)) == (seen.ledger_id, seen.entry_id)
        assert (int(rest[-1]) if rest else -1) == seen.batch_index
        assert each["publish_time"] == seen.publish_ms
    assert "20 × message that no file holds" in command.get(TOPIC, "--key", "key 3", "--all").stderr
    assert command.get(TOPIC, "--key", "no such key", code=7).stdout == ""
    assert len(command.records(TOPIC, "--key", "key 3", "-n", 5)) == 5


def test_a_tombstone_is_the_newest_word(process: StandaloneProcess, command: Command) -> None:
    topic = "persistent://public/default/deleted"
    client = pulsar.Client(process.broker_url, logger=QUIET)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"there", partition_key="k")
    assert command.get(topic, "--key", "k").stdout == "there\n"
    client.close()
    metadata = pb.MessageMetadata(
        producer_name="", sequence_id=0, publish_time=1, partition_key="k", null_value=True
    )
    with Client(process.broker_url) as ours:
        deleting = Producer(ours, TopicName.parse(topic))
        deleting.send(0, build_entry(metadata, b""))
        deleting.flush()
    gone = command.get(topic, "--key", "k", code=7)
    assert (gone.stdout, "was deleted by" in gone.stderr) == ("", True)
    assert len(command.records(topic, "--key", "k", "--all")) == 2


ROUTERS: dict[str, tuple[Callable[[str], int], int]] = {
    "by Java's hash": (lambda key: partition_of_key(key, 7), 4),
    "by Murmur3": (lambda key: (mmh3.hash(key, 0) & 0x7FFFFFFF) % 7, 4),
    "by another one": (lambda key: (int(key[1:]) + 3) % 7, 7),
}
"""The clients that choose partitions, and at how many of seven must be looked: two hashes, of the key and its
base64."""


@pytest.mark.parametrize("name", ROUTERS)
def test_the_partition_is_the_one_that_the_key_chooses(
    process: StandaloneProcess, command: Command, name: str
) -> None:
    router, partitions_max = ROUTERS[name]
    topic = f"persistent://public/default/parted-{list(ROUTERS).index(name)}"
    process.admin("PUT", f"{topic.replace('://', '/')}/partitions", 7)
    client = pulsar.Client(process.broker_url, logger=QUIET)
    producer = client.create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition,
        message_router=lambda message, count: router(message.partition_key()),
    )
    for number in range(12):
        producer.send(b"%d" % number, partition_key=f"k{number % 4}")
    client.close()
    for number in range(4):
        ended = command.get(topic, "--key", f"k{number}")
        assert ended.stdout == f"{8 + number}\n"
        assert int(ended.stderr.split("read: ")[1].split(" × partition")[0]) <= partitions_max
    assert command.get(topic, "--key", "k3", "--all", "--everywhere").stdout == "11\n7\n3\n"
