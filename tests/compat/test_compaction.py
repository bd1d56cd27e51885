"""Compaction with the official Python client."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pulsar
import pytest

from support.official import connect
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process


def call(process: StandaloneProcess, method: str, topic: str, what: str, body: object = None) -> Any:
    return process.admin(method, f"{topic.replace('://', '/')}/{what}", body)


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


def test_a_running_broker_follows_the_threshold(tmp_path: Path, topic: str) -> None:
    environment = {"MAGNETAR_COMPACTION_INTERVAL_SECONDS": "1"}
    with serving(tmp_path, ephemeral=True, environment=environment) as process:
        client = connect(process)
        producer = client.create_producer(topic, batching_enabled=False)
        call(process, "POST", topic, "compactionThreshold", 1024)
        for number in range(40):
            producer.send(b"%d" % number * 50, partition_key="k")
        wait_until(
            lambda: call(process, "GET", topic, "compaction")["status"] == "SUCCESS", 15, "it is compacted"
        )
        assert len(read(client, topic)) <= 40
        client.close()


def refused(process: StandaloneProcess, method: str, topic: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as found:
        call(process, method, topic, "compaction")
    return found.value.code


def test_partitions_are_compacted_together(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str
) -> None:
    call(standalone, "PUT", topic, "partitions", 3)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(60):
        producer.send(b"%d" % number, partition_key=f"k{number % 6}")
    call(standalone, "PUT", topic, "compaction")
    for partition in range(3):
        part = f"{topic}-partition-{partition}"
        wait_until(
            lambda part=part: call(standalone, "GET", part, "compaction")["status"] == "SUCCESS",
            10,
            "the compaction of a partition ends",
        )
    found = [message for partition in range(3) for message in read(client, f"{topic}-partition-{partition}")]
    assert sorted(body for _, body in found) == [b"%d" % number for number in range(54, 60)]
    # As in Pulsar: how it went is asked of each partition.
    assert refused(standalone, "GET", topic) == 404


def test_a_second_compaction_is_refused_while_one_runs(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, max_pending_messages=20_000, block_if_queue_full=True
    )
    for number in range(50_000):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 1000}")
    producer.flush()
    call(standalone, "PUT", topic, "compaction")
    assert refused(standalone, "PUT", topic) == 409
    wait_until(
        lambda: call(standalone, "GET", topic, "compaction")["status"] == "SUCCESS", 30, "it is compacted"
    )
    assert len(read(client, topic)) == 1000


@pytest.mark.parametrize("compression", ["LZ4", "ZSTD", "SNAPPY", "ZLib"])
def test_consumers_get_what_is_left_of_compressed_batches(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str, compression: str
) -> None:
    """Acknowledged one by one: nothing is delivered again."""
    client.subscribe(topic, "s", is_read_compacted=True).close()
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=5,
        compression_type=getattr(pulsar.CompressionType, compression),
    )
    for number in range(13):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 4}")
    producer.flush()
    compact(standalone, topic)
    consumer = client.subscribe(topic, "s", is_read_compacted=True, batch_index_ack_enabled=True)
    for number in range(9, 13):
        message = consumer.receive(10_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    wait_until(
        lambda: call(standalone, "GET", topic, "stats")["subscriptions"]["s"]["msgBacklog"] == 0,
        10,
        "nothing is behind",
    )
    consumer.close()
