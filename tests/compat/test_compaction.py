"""Compaction with the official Python client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(standalone.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/c-{uuid.uuid4().hex}"


def call(process: StandaloneProcess, method: str, topic: str, what: str, body: object = None) -> Any:
    path = topic.replace("://", "/")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{process.http_url}/admin/v2/{path}/{what}", data=data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def compact(process: StandaloneProcess, topic: str) -> None:
    call(process, "PUT", topic, "compaction")
    wait_until(
        lambda: call(process, "GET", topic, "compaction")["status"] != "RUNNING", 10, "the compaction ends"
    )
    assert call(process, "GET", topic, "compaction") == {"status": "SUCCESS", "lastError": ""}


def read(
    client: pulsar.Client, topic: str, start: Any = pulsar.MessageId.earliest
) -> list[tuple[str, bytes]]:
    reader = client.create_reader(topic, start, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.partition_key(), message.data()))
    reader.close()
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_readers_of_the_compacted_view_get_the_last_of_each_key(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str, batching: bool
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batching, compression_type=pulsar.CompressionType.ZLib
    )
    for number in range(40):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 4}")
    producer.send_async(b"", None, partition_key="k1")
    producer.flush()
    compact(standalone, topic)
    expected = [("k0", b"36"), ("k2", b"38"), ("k3", b"39")]
    assert read(client, topic) == expected
    producer.send(b"live", partition_key="k0")
    assert read(client, topic) == [*expected, ("k0", b"live")]
    compact(standalone, topic)
    assert read(client, topic) == [*expected[1:], ("k0", b"live")]
    consumer = client.subscribe(
        topic, "all", is_read_compacted=False, initial_position=pulsar.InitialPosition.Earliest
    )
    assert consumer.receive(10_000).data() == b"0"
    stats = call(standalone, "GET", topic, "internalStats")
    assert stats["compactedLedger"]["ledgerId"] >= 0
    assert stats["cursors"]["__compaction"]["properties"]["CompactedTopicLedger"] >= 0


def test_a_table_view_of_a_compacted_topic(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str
) -> None:
    producer = client.create_producer(topic)
    for number in range(9):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    compact(standalone, topic)
    producer.send(b"x", partition_key="k0")
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("k0", "k1", "k2")} == {"k0": b"x", "k1": b"7", "k2": b"8"}
    assert len(view) == 3
    view.close()


def test_the_threshold_of_a_topic(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).close()
    call(standalone, "POST", topic, "compactionThreshold", 1024)
    assert call(standalone, "GET", topic, "compactionThreshold") == 1024
    call(standalone, "DELETE", topic, "compactionThreshold")
    assert call(standalone, "GET", topic, "compaction")["status"] == "NOT_RUN"
