"""Limits of namespaces and topics, as the official Python client meets them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerType

from support.official import TIMEOUT_MS, connect
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

SILENT_MS = 300
DEADLINE_S = 60


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that looks at ages and backlogs every second."""
    often = {"MAGNETAR_LIMITS_INTERVAL_SECONDS": "1"}
    with serving(tmp_path_factory.mktemp("limits"), environment=often) as started:
        yield started


@pytest.fixture
def client(process: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = connect(process)
    yield made
    made.close()


@pytest.fixture
def hasty(process: StandaloneProcess) -> Iterator[pulsar.Client]:
    """Gives up soon: for what this client tries again until its time is up."""
    made = connect(process, operation_timeout_seconds=3)
    yield made
    made.close()


class Topic:
    """A topic in a namespace of its own, and what is set on either."""

    def __init__(self, process: StandaloneProcess) -> None:
        self._call = process.admin
        self.space = f"public/limits-{uuid.uuid4().hex}"
        self.name = f"persistent://{self.space}/t"
        self._call("PUT", f"namespaces/{self.space}", {})

    def limit(self, name: str, value: object) -> None:
        """Sets a limit of the namespace."""
        self._call("POST", f"namespaces/{self.space}/{name}", value)

    def limit_topic(self, name: str, value: object) -> None:
        """Sets a limit of the topic."""
        self._call("POST", f"persistent/{self.space}/t/{name}", value)

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self._call("GET", f"persistent/{self.space}/t/stats"))

    @property
    def backlog(self) -> int:
        """Messages in the backlog of the subscription `s`."""
        return int(self.stats["subscriptions"]["s"]["msgBacklog"])


@pytest.fixture
def topic(process: StandaloneProcess) -> Topic:
    return Topic(process)


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(TIMEOUT_MS) for _ in range(count)]


def assert_silent(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENT_MS)


def test_one_producer_too_many_is_told_so(client: pulsar.Client, topic: Topic) -> None:
    topic.limit("maxProducersPerTopic", 1)
    first = client.create_producer(topic.name)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic.name)
    first.close()
    client.create_producer(topic.name).send(b"x")


@pytest.mark.parametrize("limit", ["maxConsumersPerTopic", "maxConsumersPerSubscription"])
def test_one_consumer_too_many_is_told_so(client: pulsar.Client, topic: Topic, limit: str) -> None:
    topic.limit(limit, 1)
    first = client.subscribe(topic.name, "s", consumer_type=ConsumerType.Shared)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic.name, "s", consumer_type=ConsumerType.Shared)
    first.close()
    client.subscribe(topic.name, "s", consumer_type=ConsumerType.Shared)


def test_one_subscription_too_many_is_told_so(client: pulsar.Client, topic: Topic) -> None:
    topic.limit("maxSubscriptionsPerTopic", 1)
    client.subscribe(topic.name, "s")
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic.name, "s2")


def test_types_of_subscription_that_are_off_are_refused(client: pulsar.Client, topic: Topic) -> None:
    topic.limit("subscriptionTypesEnabled", ["Shared"])
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic.name, "s", consumer_type=ConsumerType.KeyShared)
    client.subscribe(topic.name, "s", consumer_type=ConsumerType.Shared)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_who_does_not_encrypt_is_refused_where_it_is_required(
    hasty: pulsar.Client, topic: Topic, domain: str
) -> None:
    topic.limit("encryptionRequired", True)
    # This client asks again after such a refusal.
    with pytest.raises((pulsar.BrokerMetadataError, pulsar.Timeout)):
        hasty.create_producer(topic.name.replace("persistent", domain, 1))


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])
@pytest.mark.parametrize("limit", ["maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"])
def test_who_acknowledges_nothing_is_blocked_and_goes_on(
    client: pulsar.Client, topic: Topic, kind: ConsumerType, limit: str
) -> None:
    consumer = client.subscribe(topic.name, "s", consumer_type=kind, receiver_queue_size=5)
    topic.limit_topic(limit, 10)
    producer = client.create_producer(topic.name, batching_enabled=False)
    for i in range(40):
        producer.send(b"%d" % i, partition_key=str(i))
    held = receive(consumer, 10)
    # What was under way when the limit was met came too: at most a queue.
    while True:
        try:
            held.append(consumer.receive(SILENT_MS))
        except pulsar.Timeout:
            break
    assert len(held) < 20
    assert topic.stats["subscriptions"]["s"]["unackedMessages"] >= 10
    for message in held:
        consumer.acknowledge(message)
    for _ in range(40 - len(held)):
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    assert_silent(consumer)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_exception", "ProducerBlockedQuotaExceededException"),
        ("producer_request_hold", "ProducerBlockedQuotaExceededError"),
    ],
)
def test_beyond_its_quota_a_topic_takes_no_producers(
    client: pulsar.Client, hasty: pulsar.Client, topic: Topic, policy: str, error: str
) -> None:
    client.subscribe(topic.name, "s")
    producer = client.create_producer(topic.name, send_timeout_millis=3_000)
    topic.limit("backlogQuota", {"limitSize": 1_000, "policy": policy})
    producer.send(bytes(2_000))
    producer.close()
    with pytest.raises((getattr(pulsar, error), pulsar.Timeout)):
        hasty.create_producer(topic.name)
    consumer = client.subscribe(topic.name, "other")
    consumer.unsubscribe()


def test_beyond_its_quota_the_slowest_subscription_loses_the_oldest(
    client: pulsar.Client, topic: Topic
) -> None:
    client.subscribe(topic.name, "s").close()
    topic.limit("backlogQuota", {"limitSize": 10_000, "policy": "consumer_backlog_eviction"})
    producer = client.create_producer(topic.name, batching_enabled=False)
    for _ in range(100):
        producer.send(bytes(1_000))
    wait_until(lambda: topic.backlog < 12, DEADLINE_S, "evicted")
    consumer = client.subscribe(topic.name, "s")
    assert len(receive(consumer, topic.backlog)) > 0
    producer.send(b"goes on")
    assert consumer.receive(TIMEOUT_MS).data() == b"goes on"


def test_messages_that_nobody_takes_expire(client: pulsar.Client, topic: Topic) -> None:
    client.subscribe(topic.name, "s").close()
    topic.limit("messageTTL", 1)
    client.create_producer(topic.name).send(b"old")
    wait_until(lambda: topic.backlog == 0, DEADLINE_S, "expired")
    topic.limit("messageTTL", 0)
    client.create_producer(topic.name).send(b"new")
    assert client.subscribe(topic.name, "s").receive(TIMEOUT_MS).data() == b"new"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_publish_rate_slows_a_producer_down_without_an_error(
    client: pulsar.Client, topic: Topic, domain: str
) -> None:
    topic.limit("publishRate", {"publishThrottlingRateInMsg": 20})
    producer = client.create_producer(topic.name.replace("persistent", domain, 1), batching_enabled=False)
    began = time.monotonic()
    for i in range(60):
        producer.send(b"%d" % i)
    # Twenty at once and twenty a second: less cannot be, however slow the machine is.
    assert time.monotonic() - began > 1.5


def test_a_dispatch_rate_slows_a_consumer_down(client: pulsar.Client, topic: Topic) -> None:
    consumer = client.subscribe(topic.name, "s")
    topic.limit("dispatchRate", {"dispatchThrottlingRateInMsg": 20})
    producer = client.create_producer(topic.name, batching_enabled=False)
    for i in range(60):
        producer.send_async(b"%d" % i, lambda result, _: None)
    began = time.monotonic()
    assert [message.data() for message in receive(consumer, 60)] == [b"%d" % i for i in range(60)]
    assert time.monotonic() - began > 1.0


@pytest.mark.one_process("inside")
def test_a_tenant_that_stores_too_much_is_refused_until_something_is_deleted(
    process: StandaloneProcess, hasty: pulsar.Client
) -> None:
    tenant = f"full-{uuid.uuid4().hex}"
    process.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
    process.admin("PUT", f"namespaces/{tenant}/n", {})
    topic = f"persistent://{tenant}/n/t"
    process.admin("PUT", f"persistent/{tenant}/n/t")
    process.admin("PUT", f"persistent/{tenant}/n/t/subscription/s", {})
    producer = hasty.create_producer(topic)
    producer.send(b"x" * 2_000)
    process.admin("POST", f"tenants/{tenant}/storedBytes", 1_000)
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"y")
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        hasty.create_producer(f"persistent://{tenant}/n/other")
    process.admin("DELETE", f"persistent/{tenant}/n/t?force=true")
    stored = f"tenants/{tenant}/storedBytes"
    wait_until(lambda: not process.admin("GET", stored)["refusing"], DEADLINE_S, "below its limit")
    hasty.create_producer(f"persistent://{tenant}/n/other").send(b"z")
