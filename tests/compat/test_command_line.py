"""The command `magnetar` on one side, the official Python client on the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, Schema, String

from support.official import TIMEOUT_MS, receive_all
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

DEADLINE_S = 60
Command = Callable[..., subprocess.CompletedProcess[str]]


class Order(Record):
    customer = String()
    amount = Integer()


def environment(standalone: StandaloneProcess, folder: Path) -> dict[str, str]:
    mine = {"MAGNETAR_URL": standalone.broker_url, "MAGNETAR_ADMIN_URL": standalone.http_url}
    others = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    return {**others, **mine, "MAGNETAR_CONTEXTS": str(folder / "contexts.json")}


@pytest.fixture
def magnetar(standalone: StandaloneProcess, tmp_path: Path) -> Command:
    def run(*arguments: object, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "magnetar", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment(standalone, tmp_path),
            timeout=DEADLINE_S,
        )
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    return run


def documents(ended: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_what_the_command_sends_the_client_receives(
    magnetar: Command, client: pulsar.Client, topic: str
) -> None:
    magnetar("topics", "create", topic, "--partitions", 3)
    consumer = client.subscribe(topic, "s")
    lines = "".join(f"k{i % 5}:v{i}\n" for i in range(20))
    magnetar(
        "produce", topic, "--key-separator", ":", "--property", "a=b", "--compression", "zlib", stdin=lines
    )
    magnetar("produce", topic, "plain", "--event-time", 1234)
    found = [consumer.receive(TIMEOUT_MS) for _ in range(21)]
    keyed = {message.data(): message for message in found if message.partition_key()}
    assert {data.decode(): message.partition_key() for data, message in keyed.items()} == {
        f"v{i}": f"k{i % 5}" for i in range(20)
    }
    assert {tuple(message.properties().items()) for message in keyed.values()} == {(("a", "b"),)}
    (plain,) = [message for message in found if not message.partition_key()]
    assert (plain.data(), plain.event_timestamp()) == (b"plain", 1234)
    for key in {message.partition_key() for message in keyed.values()}:
        assert len({m.topic_name() for m in keyed.values() if m.partition_key() == key}) == 1


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_values_are_decoded_by_their_schema_and_filtered(
    magnetar: Command, client: pulsar.Client, topic: str, schema: type[Schema]
) -> None:
    producer = client.create_producer(topic, schema=schema(Order), batching_enabled=True)
    for i in range(30):
        producer.send_async(Order(customer=f"c{i % 3}", amount=i), None, partition_key=f"k{i}")
    producer.flush()
    shown = magnetar("consume", topic, "--filter", "value.amount >= 27", "--format", "{key} {value.customer}")
    assert shown.stdout.splitlines() == ["k27 c0", "k28 c1", "k29 c2"]
    (first,) = documents(magnetar("consume", topic, "-n", 1, "-o", "json"))
    assert (first["value"], first["key"]) == ({"customer": "c0", "amount": 0}, "k0")
    assert magnetar("consume", topic, "--last", 2, "--format", "{value.amount}").stdout == "28\n29\n"
    found = magnetar("search", topic, 'value.customer == "c1"', "--format", "{value.amount}", "-n", 2)
    assert found.stdout == "1\n4\n"
    magnetar("search", topic, 'value.customer == "nobody"', code=7)


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_values_are_written_by_the_schema_of_the_topic(
    magnetar: Command, client: pulsar.Client, topic: str, schema: type[Schema]
) -> None:
    consumer = client.subscribe(topic, "s", schema=schema(Order))
    magnetar("produce", topic, '{"customer": "ada", "amount": 7}')
    value = consumer.receive(TIMEOUT_MS).value()
    assert (value.customer, value.amount) == ("ada", 7)
    refused = magnetar("produce", topic, '{"customer": "bob", "amount": 8}', "no json", code=1)
    assert "1 message sent" in refused.stderr
    assert "does not follow the schema" in refused.stderr
    assert consumer.receive(TIMEOUT_MS).value().customer == "bob"


def test_a_range_by_time(magnetar: Command, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    times = []
    for i in range(5):
        producer.send(b"%d" % i)
        (last,) = documents(magnetar("consume", topic, "--last", 1, "-o", "json"))
        times.append(last["broker_time"])
    assert times == sorted(set(times)), "a command lies between two messages"
    shown = magnetar("consume", topic, "--from", times[1], "--to", times[3])
    assert shown.stdout == "1\n2\n"


def test_a_subscription_is_taken_from_and_peeked_at(
    magnetar: Command, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(4):
        producer.send(b"%d" % i)
    consumer.close()
    assert magnetar("peek", topic, "s", "-n", 2).stdout == "0\n1\n"
    assert magnetar("consume", topic, "-s", "s", "-n", 2).stdout == "0\n1\n"
    assert magnetar("peek", topic, "s").stdout == "2\n"
    assert receive_all(client.subscribe(topic, "s"), 2) == [b"2", b"3"]
    # Pulsar's peeking makes the subscription that is not there, at the first message.
    assert magnetar("peek", topic, "new").stdout == "0\n"
    assert receive_all(client.subscribe(topic, "new"), 4) == [b"0", b"1", b"2", b"3"]


def test_following_shows_what_comes(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"first")
    out = tmp_path / "out"
    with out.open("wb") as file:
        following = subprocess.Popen(
            [sys.executable, "-m", "magnetar", "consume", topic, "--follow", "-n", "3"],
            stdout=file,
            env=environment(standalone, tmp_path),
        )
        try:
            wait_until(lambda: out.read_text() == "first\n", DEADLINE_S, "the first one")
            producer.send(b"second")
            wait_until(lambda: out.read_text() == "first\nsecond\n", DEADLINE_S, "the second one")
            # Readers are sent away and come back.
            standalone.admin("PUT", f"{topic.replace('://', '/')}/unload")
            producer.send(b"third")
            assert following.wait(DEADLINE_S) == 0
        finally:
            following.kill()
            following.wait()
    assert out.read_text() == "first\nsecond\nthird\n"


def test_dead_letters_go_back(magnetar: Command, client: pulsar.Client, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-DLQ")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=100,
    )
    letters = client.subscribe(f"{topic}-DLQ", "look")
    client.create_producer(topic).send(b"bad", partition_key="k", properties={"a": "b"})
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(TIMEOUT_MS))
    letters.receive(TIMEOUT_MS)
    magnetar("replay", f"{topic}-DLQ", "--dead-letters", "--dry-run")
    assert f"1 message sent to {topic}" in magnetar("replay", f"{topic}-DLQ", "--dead-letters").stdout
    again = consumer.receive(TIMEOUT_MS)
    assert (again.data(), again.partition_key(), again.properties()) == (b"bad", "k", {"a": "b"})
    consumer.acknowledge(again)


def test_a_replay_into_another_topic(magnetar: Command, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib)
    for i in range(10):
        producer.send_async(b"%d" % i, None, partition_key=f"k{i % 2}")
    producer.flush()
    consumer = client.subscribe(f"{topic}-again", "s")
    magnetar("replay", topic, f"{topic}-again", "--filter", 'key == "k1"')
    assert receive_all(consumer, 5) == [b"1", b"3", b"5", b"7", b"9"]


def test_administration_and_its_exit_codes(magnetar: Command, client: pulsar.Client, topic: str) -> None:
    space = f"public/{topic.rpartition('/')[2]}"
    magnetar("namespaces", "create", space)
    magnetar("namespaces", "create", space, code=6)
    magnetar("namespaces", "policies", "set", space, "maxProducersPerTopic", 1)
    assert magnetar("namespaces", "policies", "get", space, "maxProducersPerTopic").stdout == "1\n"
    first = client.create_producer(f"persistent://{space}/t")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(f"persistent://{space}/t")
    first.close()
    magnetar("namespaces", "policies", "unset", space, "maxProducersPerTopic")
    magnetar("subscriptions", "create", f"{space}/t", "s", "--at", "earliest")
    (row,) = json.loads(magnetar("subscriptions", "list", f"{space}/t", "-o", "json").stdout)
    assert (row["subscription"], row["backlog"], row["state"]) == ("s", 0, "no-consumers")
    assert f"persistent://{space}/t" in magnetar("topics", "list", space).stdout
    magnetar("topics", "delete", f"{space}/t", "--yes", "--force")
    magnetar("topics", "stats", f"{space}/t", code=4)
    magnetar("namespaces", "delete", space, "--yes")
    magnetar("namespaces", "get", space, code=4)
    magnetar("brokers", "health", "--admin-url", "http://127.0.0.1:1", code=5)


def test_a_context_says_where_the_cluster_is(
    magnetar: Command, standalone: StandaloneProcess, topic: str
) -> None:
    magnetar("context", "add", "here", "--url", standalone.http_url)
    magnetar("context", "add", "nowhere", "--url", "http://127.0.0.1:1")
    assert "public" in magnetar("tenants", "list", "--context", "here").stdout
    magnetar("tenants", "list", "--context", "nowhere", code=5)
    # Over an HTTP address messages go too: the broker is looked up there.
    magnetar("produce", topic, "x", "--context", "here")
    assert magnetar("consume", topic, "--context", "here").stdout == "x\n"


@pytest.mark.one_process("folder")
def test_what_operators_look_at(
    magnetar: Command, standalone: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    rows = json.loads(magnetar("top", "--looks", 1, "-n", 10_000, "-o", "json").stdout)
    assert topic.removeprefix("persistent://") in {row["topic"] for row in rows}
    found = magnetar("doctor", "-o", "json", "--data", standalone.data_dir).stdout
    states = {each["check"]: each["state"] for each in json.loads(found)}
    assert states["health"] == states["clock"] == states["admin API"] == "ok"
    bundle = tmp_path / "bundle.tar.gz"
    magnetar("debug", "bundle", bundle, "--topic", topic, "--log", standalone.log_path)
    with tarfile.open(bundle) as archive:
        topics = archive.extractfile("magnetar-debug/topics.json")
        assert topics is not None
        assert json.load(topics)[topic]["stats"]["msgInCounter"] == 1
        assert "magnetar-debug/metrics.txt" in archive.getnames()


def test_load_reaches_the_topic_and_is_read_again(
    magnetar: Command, client: pulsar.Client, topic: str
) -> None:
    magnetar("topics", "create", topic, "--partitions", 2)
    consumer = client.subscribe(topic, "s")
    arguments = ("--rate", 2000, "--batch", 10, "--size", 50, "--seconds", 0.2, "--warm-up", 0)
    sent = json.loads(magnetar("bench", "publish", topic, *arguments, "-o", "json").stdout)
    assert sent["messages"] >= 20
    assert sent["p50_ms"] is not None
    found = [consumer.receive(TIMEOUT_MS) for _ in range(sent["messages"])]
    assert {len(message.data()) for message in found} == {50}
    assert len({message.topic_name() for message in found}) == 2
    arguments = ("--from", "earliest", "--seconds", 1, "-o", "json")
    read = json.loads(magnetar("bench", "consume", topic, *arguments).stdout)
    assert read["messages"] == sent["messages"]
