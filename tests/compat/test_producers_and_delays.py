"""Access modes, delayed messages and consumer statistics with the official Python client."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pulsar
import pytest
from pulsar import ConsumerType, ProducerAccessMode

from support.official import TIMEOUT_MS, connect
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process


def test_a_second_exclusive_producer_is_fenced(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)


def test_a_waiting_producer_gets_the_topic_when_its_holder_leaves(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    other = connect(standalone)
    holder = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.create_producer, topic, access_mode=ProducerAccessMode.WaitForExclusive)
        holder.send(b"held")
        assert not waiting.done()
        holder.close()
        producer = waiting.result(TIMEOUT_MS / 1000)
    producer.send(b"taken over")
    other.close()


def test_a_fenced_producer_publishes_nothing_more(client: pulsar.Client, topic: str) -> None:
    old = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    old.send(b"old")
    new = client.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
    new.send(b"new")
    with pytest.raises((pulsar.ProducerFenced, pulsar.AlreadyClosed)):
        old.send(b"too late")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(TIMEOUT_MS).data() for _ in range(2)] == [b"old", b"new"]
    assert not reader.has_message_available()


def test_an_exclusive_producer_keeps_its_topic_over_a_restart(
    standalone_folder: StandaloneProcess, topic: str
) -> None:
    standalone_folder.start()
    client = connect(standalone_folder)
    first = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    first.send(b"1")
    first.close()
    second = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    second.send(b"2")
    client.close()
    standalone_folder.stop()
    standalone_folder.start()
    client = connect(standalone_folder)
    third = client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
    third.send(b"3")
    client.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


SHARED_TYPES = pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])


@SHARED_TYPES
def test_delayed_messages_come_at_their_time_and_block_nobody(
    client: pulsar.Client, topic: str, kind: ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    due_ms = {b"third": now_ms() + 900, b"second": now_ms() + 500}
    producer.send(b"third", deliver_at=due_ms[b"third"])
    producer.send(b"second", deliver_after=timedelta(milliseconds=500))
    producer.send(b"far", deliver_after=timedelta(days=400))
    producer.send(b"first")
    for body in (b"first", b"second", b"third"):
        message = consumer.receive(TIMEOUT_MS)
        assert message.data() == body
        assert now_ms() >= due_ms.get(body, 0)
        consumer.acknowledge(message)


def test_batches_pass_between_delayed_messages(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True)
    producer.send(b"later", deliver_after=timedelta(milliseconds=300))
    for i in range(100):
        producer.send_async(str(i).encode(), lambda *_: None)
    producer.flush()
    found = [consumer.receive(TIMEOUT_MS).data() for _ in range(101)]
    assert found == [*(str(i).encode() for i in range(100)), b"later"]


@SHARED_TYPES
def test_delayed_messages_survive_a_kill(
    standalone_folder: StandaloneProcess, topic: str, kind: ConsumerType
) -> None:
    standalone_folder.start()
    client = connect(standalone_folder)
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    due_ms = now_ms() + 3_000
    for i in range(20):
        producer.send(b"later %d" % i, deliver_at=due_ms)
    producer.send(b"now")
    message = consumer.receive(TIMEOUT_MS)
    assert message.data() == b"now"
    consumer.acknowledge(message)
    standalone_folder.kill()
    standalone_folder.start()
    late = connect(standalone_folder)
    consumer = late.subscribe(topic, "s", consumer_type=kind)
    found: set[bytes] = set()
    while len(found) < 20:
        message = consumer.receive(TIMEOUT_MS)
        consumer.acknowledge(message)
        if message.data() != b"now":  # its acknowledgement may have been lost with the broker
            assert now_ms() >= due_ms
            found.add(message.data())
    assert found == {b"later %d" % i for i in range(20)}
    late.close()
    client.close()


def test_redelivery_counts_lead_to_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, dead_letter_topic=f"{topic}-dead")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=ConsumerType.Shared,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=50,
    )
    client.create_producer(topic).send(b"x")
    counts = []
    for _ in range(3):
        message = consumer.receive(TIMEOUT_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2]
    dead = client.create_reader(f"{topic}-dead", pulsar.MessageId.earliest)
    assert dead.read_next(TIMEOUT_MS).data() == b"x"


def test_redelivery_counts_survive_a_restart(standalone_folder: StandaloneProcess, topic: str) -> None:
    standalone_folder.start()
    for expected in range(3):
        client = connect(standalone_folder)
        consumer = client.subscribe(
            topic, "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=50
        )
        if not expected:
            client.create_producer(topic).send(b"x")
        message = consumer.receive(TIMEOUT_MS)
        assert message.redelivery_count() == expected
        consumer.negative_acknowledge(message)
        assert consumer.receive(TIMEOUT_MS).redelivery_count() == expected + 1
        client.close()
        standalone_folder.stop()
        standalone_folder.start()
