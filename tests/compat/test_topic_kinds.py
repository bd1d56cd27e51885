"""Non-persistent topics, patterns, topics that come by themselves, with the official Python client."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from urllib.parse import quote

import pulsar
import pytest
from pulsar import ConsumerType, RegexSubscriptionMode

from support.official import TIMEOUT_MS, connect, receive_all
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

NAMESPACE = "public/default"


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex}"


@pytest.mark.parametrize(
    "kind", [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared]
)
@pytest.mark.parametrize("batching", [False, True])
def test_messages_of_a_non_persistent_topic_reach_who_is_there(
    client: pulsar.Client, name: str, kind: ConsumerType, batching: bool
) -> None:
    topic = f"non-persistent://{NAMESPACE}/{name}"
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic, batching_enabled=batching)
    sent = [b"%d" % i for i in range(50)]
    for body in sent:
        producer.send_async(body, lambda result, _: None, partition_key=body.decode())
    producer.flush()
    assert sorted(receive_all(consumer, 50)) == sorted(sent)
    late = client.subscribe(topic, "late")
    with pytest.raises(pulsar.Timeout):
        late.receive(200)


def test_a_partitioned_non_persistent_topic(
    standalone: StandaloneProcess, client: pulsar.Client, name: str
) -> None:
    topic = f"non-persistent://{NAMESPACE}/{name}"
    standalone.admin("PUT", f"non-persistent/{NAMESPACE}/{name}/partitions", 3)
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(topic)
    for i in range(30):
        producer.send(b"%d" % i)
    assert len(set(receive_all(consumer, 30))) == 30
    stats = standalone.admin("GET", f"non-persistent/{NAMESPACE}/{name}/partitioned-stats")
    assert stats["msgInCounter"] == stats["msgOutCounter"] == 30


def test_what_nobody_asks_for_is_dropped_and_counted(
    standalone: StandaloneProcess, client: pulsar.Client, name: str
) -> None:
    topic = f"non-persistent://{NAMESPACE}/{name}"
    consumer = client.subscribe(topic, "s", receiver_queue_size=5)
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(20):
        producer.send(b"%d" % i)
    assert receive_all(consumer, 5) == [b"%d" % i for i in range(5)]
    stats = standalone.admin("GET", f"non-persistent/{NAMESPACE}/{name}/stats")
    assert stats["subscriptions"]["s"]["msgDropCounter"] == 15
    assert stats["subscriptions"]["s"]["msgDropRate"] > 0


def test_a_reader_of_a_non_persistent_topic(client: pulsar.Client, name: str) -> None:
    topic = f"non-persistent://{NAMESPACE}/{name}"
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    client.create_producer(topic).send(b"seen")
    assert reader.read_next(TIMEOUT_MS).data() == b"seen"


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        (RegexSubscriptionMode.PersistentOnly, {"persistent"}),
        # A broker tells clients the non-persistent topics that it has, as Pulsar's does.
        pytest.param(
            RegexSubscriptionMode.NonPersistentOnly,
            {"non-persistent"},
            marks=pytest.mark.one_process("alone"),
        ),
        pytest.param(
            RegexSubscriptionMode.AllTopics,
            {"persistent", "non-persistent"},
            marks=pytest.mark.one_process("alone"),
        ),
    ],
)
def test_a_pattern_over_the_domains(
    client: pulsar.Client, name: str, mode: RegexSubscriptionMode, seen: set[str]
) -> None:
    producers = {
        domain: client.create_producer(f"{domain}://{NAMESPACE}/{name}-x")
        for domain in ("persistent", "non-persistent")
    }
    pattern = re.compile(f"{NAMESPACE}/{name}-.*")
    consumer = client.subscribe(pattern, "s", regex_subscription_mode=mode)
    for domain, producer in producers.items():
        producer.send(domain.encode())
    assert set(receive_all(consumer, len(seen))) == {domain.encode() for domain in seen}
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)


def test_topics_come_partitioned_where_the_namespace_says_so(
    standalone: StandaloneProcess, client: pulsar.Client, name: str
) -> None:
    space = f"public/{name}"
    standalone.admin("PUT", f"namespaces/{space}")
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    standalone.admin("POST", f"namespaces/{space}/autoTopicCreation", override)
    client.create_producer(f"persistent://{space}/t").send(b"x")
    assert standalone.admin("GET", f"persistent/{space}/t/partitions")["partitions"] == 2
    assert standalone.admin("GET", f"namespaces/{space}/autoTopicCreation") == override
    standalone.admin("POST", f"namespaces/{space}/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer(f"persistent://{space}/other")


def test_subscriptions_do_not_come_where_the_namespace_forbids_it(
    standalone: StandaloneProcess, client: pulsar.Client, name: str
) -> None:
    space = f"public/{name}"
    standalone.admin("PUT", f"namespaces/{space}")
    client.create_producer(f"persistent://{space}/t").send(b"x")
    path = f"namespaces/{space}/autoSubscriptionCreation"
    standalone.admin("POST", path, {"allowAutoSubscriptionCreation": False})
    hasty = connect(standalone, operation_timeout_seconds=1)
    # This client tries again until its time is up.
    with pytest.raises((pulsar.SubscriptionNotFound, pulsar.Timeout)):
        hasty.subscribe(f"persistent://{space}/t", "s")
    hasty.close()
    assert standalone.admin("GET", f"persistent/{space}/t/subscriptions") == []
    standalone.admin("PUT", f"persistent/{space}/t/subscription/s", "earliest")
    assert receive_all(client.subscribe(f"persistent://{space}/t", "s"), 1) == [b"x"]


def test_growth_reaches_connected_clients(
    standalone: StandaloneProcess, client: pulsar.Client, name: str
) -> None:
    standalone.admin("PUT", f"persistent/{NAMESPACE}/{name}/partitions", 1)
    topic = f"persistent://{NAMESPACE}/{name}"
    quick = connect(standalone)
    consumer = client.subscribe(topic, "s")
    standalone.admin("POST", f"persistent/{NAMESPACE}/{name}/partitions", 4)
    producer = quick.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for i in range(8):
        producer.send(b"%d" % i)
    again = quick.subscribe(topic, "t", initial_position=pulsar.InitialPosition.Earliest)
    assert len(set(receive_all(again, 8))) == 8
    # It began when there was one partition, and goes on with it.
    assert len(receive_all(consumer, 2)) == 2
    quick.close()


@pytest.mark.parametrize("local", ["ü ö%20+", "a:b,c;d?e#f&g=h", "naïve ✓ 名", "x%2Fy", "tilde~*()'!"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_names_of_any_legal_characters(
    standalone: StandaloneProcess, client: pulsar.Client, name: str, local: str, domain: str
) -> None:
    topic = f"{domain}://{NAMESPACE}/{name}{local}"
    consumer = client.subscribe(topic, "sub ü/%")
    client.create_producer(topic).send(b"x")
    assert receive_all(consumer, 1) == [b"x"]
    assert consumer.topic() == topic
    listed = standalone.admin("GET", f"{domain}/{NAMESPACE}")
    assert topic in listed
    path = f"{domain}/{NAMESPACE}/{quote(name + local, safe='')}"
    assert standalone.admin("GET", f"{path}/subscriptions") == ["sub ü/%"]
    consumer.close()
    assert standalone.admin("GET", f"{path}/stats")["msgInCounter"] == 1


def test_topics_that_nobody_uses_are_deleted(tmp_path: Path, name: str) -> None:
    quick = {
        "MAGNETAR_INACTIVE_TOPIC_DELETION": "true",
        "MAGNETAR_INACTIVE_TOPIC_SECONDS": "1",
        "MAGNETAR_INACTIVE_TOPIC_INTERVAL_SECONDS": "1",
    }
    with serving(tmp_path / "standalone", environment=quick) as standalone:
        client = connect(standalone)
        unused = [f"{domain}://{NAMESPACE}/{name}" for domain in ("persistent", "non-persistent")]
        kept = f"persistent://{NAMESPACE}/{name}-kept"
        client.subscribe(kept, "s").close()
        for topic in unused:
            producer = client.create_producer(topic)
            producer.send(b"x")
            producer.close()
        lists = [f"{domain}/{NAMESPACE}" for domain in ("persistent", "non-persistent")]
        wait_until(
            lambda: [topic for path in lists for topic in standalone.admin("GET", path)] == [kept],
            30,
            "only what somebody uses is left",
        )
        # A topic that comes back is a new one.
        reader = client.create_reader(unused[0], pulsar.MessageId.earliest)
        assert not reader.has_message_available()
        client.close()


def test_properties_of_topics(standalone: StandaloneProcess, name: str) -> None:
    plain, parts = (f"persistent/{NAMESPACE}/{name}{end}" for end in ("a", "b"))
    standalone.admin("PUT", plain)
    standalone.admin("PUT", f"{parts}/partitions", {"partitions": 2, "properties": {"owner": "x"}})
    for path in (plain, parts):
        standalone.admin("PUT", f"{path}/properties", {"team": "y"})
        standalone.admin("PUT", f"{path}/properties", {"gone": "z"})
        standalone.admin("DELETE", f"{path}/properties?key=gone")
    assert standalone.admin("GET", f"{plain}/properties") == {"team": "y"}
    standalone.admin("POST", f"{parts}/partitions", 3)
    assert standalone.admin("GET", f"{parts}/properties") == {"owner": "x", "team": "y"}
