"""Access modes, delayed messages and consumer statistics with the official Python client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest
from pulsar import ProducerAccessMode

from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process

TIMEOUT_MS = 10_000


def connect(standalone: StandaloneProcess) -> pulsar.Client:
    return pulsar.Client(
        standalone.broker_url,
        operation_timeout_seconds=10,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


@pytest.fixture
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = connect(standalone)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/t-{uuid.uuid4().hex}"


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
