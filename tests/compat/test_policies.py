"""Policies over the admin API, and what the official client notices of them at once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pulsar
import pytest

from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

_NUMBERS = itertools.count()


class Place:
    """A namespace of a test's own, over REST."""

    def __init__(self, http_url: str) -> None:
        self._base = f"{http_url}/admin/v2"
        self._http_url = http_url
        self.namespace = f"public/policies-{next(_NUMBERS)}"
        self.topic = f"persistent://{self.namespace}/t"
        self.call("PUT", f"/namespaces/{self.namespace}", {})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        root = self._http_url if path.startswith("/topics/") else self._base
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(root + path, data, headers, method=method), timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def on_namespace(self, policy: str, value: Any) -> None:
        self.call("POST", f"/namespaces/{self.namespace}/{policy}", value)

    def on_topic(self, policy: str, value: Any) -> None:
        self.call("POST", f"/persistent/{self.namespace}/t/{policy}", value)

    def entries(self) -> int:
        return int(self.call("GET", f"/persistent/{self.namespace}/t/internalStats")["numberOfEntries"])

    def backlog(self) -> int:
        """Messages in the backlog of the subscription `s`."""
        stats = self.call("GET", f"/persistent/{self.namespace}/t/stats")
        return int(stats["subscriptions"]["s"]["msgBacklog"])


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with serving(tmp_path_factory.mktemp("policies"), ephemeral=True) as process:
        yield process


@pytest.fixture(scope="module")
def client(process: StandaloneProcess) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(process.broker_url, operation_timeout_seconds=5, logger=logger)
    yield client
    client.close()


@pytest.fixture
def place(process: StandaloneProcess) -> Place:
    return Place(process.http_url)


def received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(10_000)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def test_one_topic_too_many_does_not_come_into_being(client: pulsar.Client, place: Place) -> None:
    client.create_producer(place.topic).close()
    place.on_namespace("maxTopicsPerNamespace", 1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"{place.topic}-2")
    place.on_namespace("maxTopicsPerNamespace", 2)
    client.create_producer(f"{place.topic}-2").close()


def test_what_is_retained_stays_after_everybody_has_it(client: pulsar.Client, place: Place) -> None:
    place.on_namespace("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    consumer = client.subscribe(place.topic, "s")
    producer = client.create_producer(place.topic, batching_enabled=False)
    for number in range(5):
        producer.send(str(number).encode())
    received(consumer, 5)
    wait_until(lambda: place.backlog() == 0, 10, "acknowledged")
    unload, trim = (f"/persistent/{place.namespace}/t/{what}" for what in ("unload", "trim"))
    place.call("PUT", unload)
    place.call("POST", trim)
    assert place.entries() == 5
    reader = client.create_reader(place.topic, pulsar.MessageId.earliest)
    assert reader.read_next(10_000).data() == b"0"
    reader.close()
    place.on_topic("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    place.call("PUT", unload)
    assert place.entries() == 0
    consumer.close()
    producer.close()


def test_a_topic_deduplicates_from_the_call_on(client: pulsar.Client, place: Place) -> None:
    consumer = client.subscribe(place.topic, "s")
    producer = client.create_producer(place.topic, producer_name="p", batching_enabled=False)
    place.on_topic("deduplicationEnabled", True)
    for sequence_id, body in ((5, b"a"), (5, b"again"), (6, b"b")):
        producer.send(body, sequence_id=sequence_id)
    assert received(consumer, 2) == [b"a", b"b"]
    consumer.close()
    producer.close()


def test_a_limit_for_all_clusters_counts_producers(client: pulsar.Client, place: Place) -> None:
    first = client.create_producer(place.topic)
    place.on_topic("maxProducers?isGlobal=true", 1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(place.topic)
    place.on_topic("maxProducers", 2)
    client.create_producer(place.topic).close()
    first.close()


def test_a_truncated_topic_goes_on(client: pulsar.Client, place: Place) -> None:
    producer = client.create_producer(place.topic, batching_enabled=False)
    for number in range(3):
        producer.send(str(number).encode())
    place.call("DELETE", f"/persistent/{place.namespace}/t/truncate")
    producer.send(b"after")
    consumer = client.subscribe(place.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert received(consumer, 1) == [b"after"]
    consumer.close()
    producer.close()


def test_what_is_published_over_http_arrives(client: pulsar.Client, place: Place) -> None:
    consumer = client.subscribe(place.topic, "s")
    message = {"payload": "hello", "key": "k", "properties": {"a": "b"}, "eventTime": 7}
    answer = place.call("POST", f"/topics/persistent/{place.namespace}/t", {"messages": [message]})
    found = consumer.receive(10_000)
    assert (found.data(), found.partition_key(), found.properties()) == (b"hello", "k", {"a": "b"})
    assert found.event_timestamp() == 7
    ledger, entry, _ = answer["messagePublishResults"][0]["messageId"].split(":")
    assert (found.message_id().ledger_id(), found.message_id().entry_id()) == (int(ledger), int(entry))
    consumer.close()
