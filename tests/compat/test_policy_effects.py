"""Each policy, set on a namespace and on a topic, and what the official client notices of it at once.

`docs/compatibility/policies.md` says which test shows what. Rounds of expiry and quotas come once a minute
here, as by default: what is seen sooner was done because the policy changed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pulsar
import pytest
from pulsar import ConsumerType
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.wire import pulsar_pb2 as pb
from support.official import TIMEOUT_MS, connect
from support.raw_client import RawClient
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

LEVELS = ("namespace", "topic")
SILENT_MS = 300
DEADLINE_S = 60
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    often = {"MAGNETAR_INACTIVE_TOPIC_INTERVAL_SECONDS": "1"}
    with serving(tmp_path_factory.mktemp("effects"), ephemeral=True, environment=often) as started:
        yield started


@pytest.fixture(scope="module")
def client(process: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = connect(process)
    yield made
    made.close()


@pytest.fixture
def hasty(process: StandaloneProcess) -> Iterator[pulsar.Client]:
    """Gives up soon: for what this client tries again until its time is up."""
    made = connect(process, operation_timeout_seconds=2)
    yield made
    made.close()


class Place:
    """A topic in a namespace of its own."""

    def __init__(self, process: StandaloneProcess) -> None:
        self.call = process.admin
        self._http_url = process.http_url
        self.space = f"public/effects-{next(_NUMBERS)}"
        self.topic = f"persistent://{self.space}/t"
        self.call("PUT", f"namespaces/{self.space}", {})

    def set(self, level: str, names: tuple[str, str], value: object, method: str = "POST") -> None:
        """Sets a policy at one level; `names` are those of a namespace's and of a topic's."""
        if level == "namespace":
            self.call(method, f"namespaces/{self.space}/{names[0]}", value)
        else:
            self.call(method, f"persistent/{self.space}/t/{names[1]}", value)

    def same(self, level: str, name: str, value: object, method: str = "POST") -> None:
        """The same for a policy that has one name at both."""
        self.set(level, (name, name), value, method)

    def applied(self, name: str) -> Any:
        """What is in force on the topic."""
        return self.call("GET", f"persistent/{self.space}/t/{name}?applied=true")

    def publish(self, message: dict[str, Any]) -> str:
        """Publishes over HTTP; why it was refused. The official client sends what is refused for ever."""
        body = json.dumps({"messages": [message]}).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(
            Request(f"{self._http_url}/topics/persistent/{self.space}/t", body, headers), timeout=20
        ) as answer:
            result = json.loads(answer.read())["messagePublishResults"][0]
        return str(result.get("errorMsg") or "")

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self.call("GET", f"persistent/{self.space}/t/stats"))

    def backlog(self, subscription: str = "s") -> int:
        return int(self.stats["subscriptions"][subscription]["msgBacklog"])


@pytest.fixture
def place(process: StandaloneProcess) -> Place:
    return Place(process)


def sent(client: pulsar.Client, topic: str, count: int, body: bytes = b"x") -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(count):
        producer.send(body)
    producer.close()


def took_s(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def until_old(since: float, age_s: float) -> None:
    """Returns when a message of that moment has that age."""
    wait_until(lambda: time.time() > since + age_s, DEADLINE_S, "the message is old")


# -- how many --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_producers_are_counted(client: pulsar.Client, place: Place, level: str) -> None:
    first = client.create_producer(place.topic)
    place.set(level, ("maxProducersPerTopic", "maxProducers"), 1)
    assert place.applied("maxProducers") == 1
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(place.topic)
    first.close()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "names",
    [
        ("maxConsumersPerTopic", "maxConsumers"),
        ("maxConsumersPerSubscription", "maxConsumersPerSubscription"),
    ],
)
def test_consumers_are_counted(
    client: pulsar.Client, place: Place, level: str, names: tuple[str, str]
) -> None:
    first = client.subscribe(place.topic, "s", consumer_type=ConsumerType.Shared)
    place.set(level, names, 1)
    assert place.applied(names[1]) == 1
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(place.topic, "s", consumer_type=ConsumerType.Shared)
    first.close()


@pytest.mark.parametrize("level", LEVELS)
def test_subscriptions_are_counted_and_typed(client: pulsar.Client, place: Place, level: str) -> None:
    client.subscribe(place.topic, "s").close()
    place.same(level, "maxSubscriptionsPerTopic", 1)
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(place.topic, "s2")
    place.same(level, "subscriptionTypesEnabled", ["Shared"])
    assert place.applied("subscriptionTypesEnabled") == ["Shared"]
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(place.topic, "s")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "names",
    [
        ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"),
        ("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"),
    ],
)
def test_who_acknowledges_nothing_gets_no_more(
    client: pulsar.Client, place: Place, level: str, names: tuple[str, str]
) -> None:
    consumer = client.subscribe(place.topic, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=1)
    place.set(level, names, 3)
    assert place.applied(names[1]) == 3
    sent(client, place.topic, 9)
    held = [consumer.receive(TIMEOUT_MS) for _ in range(3)]
    wait_until(lambda: bool(_blocked(place)), DEADLINE_S, "blocked")
    # What was under way when the limit was met came too.
    while (message := _next(consumer)) is not None:
        held.append(message)
    assert len(held) < 9
    for message in held:
        consumer.acknowledge(message)
    for _ in range(9 - len(held)):
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    consumer.close()


def _next(consumer: pulsar.Consumer) -> pulsar.Message | None:
    try:
        return consumer.receive(SILENT_MS)
    except pulsar.Timeout:
        return None


def _blocked(place: Place) -> bool:
    subscription = place.stats["subscriptions"]["s"]
    consumers = subscription["consumers"]
    return subscription["blockedSubscriptionOnUnackedMsgs"] or any(
        consumer["blockedConsumerOnUnackedMsgs"] for consumer in consumers
    )


def test_a_message_may_be_too_large_for_a_topic(client: pulsar.Client, place: Place) -> None:
    client.create_producer(place.topic).close()
    assert place.publish({"payload": "x" * 100}) == ""
    place.call("POST", f"persistent/{place.space}/t/maxMessageSize", 90)
    assert place.applied("maxMessageSize") == 90
    assert "exceeds this topic's limit" in place.publish({"payload": "x" * 100})
    assert place.publish({"payload": "x"}) == ""


# -- how fast --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_publishing_keeps_its_rate(client: pulsar.Client, place: Place, level: str) -> None:
    producer = client.create_producer(place.topic, batching_enabled=False)
    place.same(level, "publishRate", {"publishThrottlingRateInMsg": 10})
    # Ten at once and ten a second: less cannot be, however slow the machine is.
    assert took_s(lambda: [producer.send(b"x") for _ in range(18)]) > 0.6
    assert place.applied("publishRate")["publishThrottlingRateInMsg"] == 10
    producer.close()


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("dispatchRate", "namespace"),
        ("dispatchRate", "topic"),
        ("subscriptionDispatchRate", "namespace"),
        ("subscriptionDispatchRate", "topic"),
        ("s/dispatchRate", "topic"),
    ],
)
def test_delivery_keeps_its_rate(client: pulsar.Client, place: Place, policy: str, level: str) -> None:
    client.subscribe(place.topic, "s").close()
    sent(client, place.topic, 18)
    place.same(level, policy, {"dispatchThrottlingRateInMsg": 10})
    began = time.monotonic()
    consumer = client.subscribe(place.topic, "s")
    for _ in range(18):
        consumer.receive(TIMEOUT_MS)
    # Ten at once and ten a second: less cannot be, however slow the machine is.
    assert time.monotonic() - began > 0.6
    assert place.applied(policy)["dispatchThrottlingRateInMsg"] == 10
    consumer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_consumer_may_not_subscribe_again_and_again(
    process: StandaloneProcess, place: Place, level: str
) -> None:
    once = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 3_600}
    with RawClient(process.url_of(place.topic)) as raw:
        raw.open_producer(place.topic)
        place.same(level, "subscribeRate", once)
        subscribe = {"topic": place.topic, "subscription": "s", "subType": 0, "consumer_name": "c"}
        raw.ask(pb.BaseCommand.SUBSCRIBE, consumer_id=5, request_id=11, **subscribe)
        raw.ask(pb.BaseCommand.CLOSE_CONSUMER, consumer_id=5, request_id=12)
        answer = raw.ask(pb.BaseCommand.SUBSCRIBE, consumer_id=5, request_id=13, **subscribe)
        assert answer.error == pb.NotAllowedError
        assert answer.request_id == 13


def test_topics_of_a_resource_group_share_its_rate(client: pulsar.Client, process: StandaloneProcess) -> None:
    group = f"group-{next(_NUMBERS)}"
    process.admin("PUT", f"resourcegroups/{group}", {"publishRateInMsgs": 10})
    places = [Place(process), Place(process)]
    producers = [client.create_producer(place.topic, batching_enabled=False) for place in places]
    for place in places:
        place.call("POST", f"namespaces/{place.space}/resourcegroup/{group}")
    assert took_s(lambda: [producer.send(b"x") for _ in range(9) for producer in producers]) > 0.6
    for place, producer in zip(places, producers, strict=True):
        place.call("DELETE", f"namespaces/{place.space}/resourcegroup")
        producer.close()


# -- what stays ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_old_messages_expire_when_the_ttl_is_set(client: pulsar.Client, place: Place, level: str) -> None:
    client.subscribe(place.topic, "s").close()
    sent(client, place.topic, 1)
    until_old(time.time(), 1.1)
    assert place.backlog() == 1
    place.same(level, "messageTTL", 1)
    assert place.backlog() == 0
    assert place.applied("messageTTL") == 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kind", "limit"), [("destination_storage", {"limitSize": 1_000}), ("message_age", {"limitTime": 1})]
)
def test_a_backlog_over_its_quota_shrinks_when_the_quota_is_set(
    client: pulsar.Client, place: Place, level: str, kind: str, limit: dict[str, int]
) -> None:
    client.subscribe(place.topic, "s").close()
    sent(client, place.topic, 10, bytes(1_000))
    if kind == "message_age":
        # A quota holds what is older than the limit by a whole second.
        until_old(time.time(), 2.1)
    assert place.backlog() == 10
    body = {**limit, "policy": "consumer_backlog_eviction"}
    place.same(level, f"backlogQuota?backlogQuotaType={kind}", body)
    assert place.backlog() < 10
    assert place.applied("backlogQuotaMap")[kind]["policy"] == "consumer_backlog_eviction"


@pytest.mark.parametrize("level", LEVELS)
def test_producers_leave_a_topic_over_its_quota(
    client: pulsar.Client, hasty: pulsar.Client, place: Place, level: str
) -> None:
    client.subscribe(place.topic, "s").close()
    sent(client, place.topic, 1, bytes(2_000))
    place.same(level, "backlogQuota", {"limitSize": 1_000, "policy": "producer_exception"})
    with pytest.raises((pulsar.ProducerBlockedQuotaExceededException, pulsar.Timeout)):
        hasty.create_producer(place.topic)


@pytest.mark.parametrize("level", LEVELS)
def test_what_everybody_has_goes_when_it_is_not_retained_any_more(
    client: pulsar.Client, place: Place, level: str
) -> None:
    place.call(
        "POST",
        f"namespaces/{place.space}/retention",
        {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    )
    sent(client, place.topic, 3)
    # The ledger is sealed by that, so that it may go.
    place.call("PUT", f"persistent/{place.space}/t/unload")
    assert place.call("GET", f"persistent/{place.space}/t/internalStats")["numberOfEntries"] == 3
    place.same(level, "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    assert place.call("GET", f"persistent/{place.space}/t/internalStats")["numberOfEntries"] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_topic_that_nobody_uses_goes(client: pulsar.Client, place: Place, level: str) -> None:
    client.create_producer(place.topic).close()
    policy = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    }
    place.same(level, "inactiveTopicPolicies", policy)
    wait_until(lambda: place.call("GET", f"persistent/{place.space}") == [], DEADLINE_S, "deleted")


@pytest.mark.parametrize("level", LEVELS)
def test_a_threshold_begins_a_compaction(client: pulsar.Client, place: Place, level: str) -> None:
    producer = client.create_producer(place.topic, batching_enabled=False)
    for number in range(5):
        producer.send(bytes(100), partition_key=str(number % 2))
    producer.close()
    put = level == "namespace"
    place.same(level, "compactionThreshold", 100, "PUT" if put else "POST")
    wait_until(
        lambda: place.call("GET", f"persistent/{place.space}/t/compaction")["status"] == "SUCCESS",
        DEADLINE_S,
        "compacted",
    )
    reader = client.create_reader(place.topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert [reader.read_next(TIMEOUT_MS).partition_key() for _ in range(2)] == ["1", "0"]
    assert not reader.has_message_available()
    reader.close()


# -- what comes into being -------------------------------------------------------------------------------


def test_topics_come_only_where_they_may(hasty: pulsar.Client, place: Place) -> None:
    place.call("POST", f"namespaces/{place.space}/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises((pulsar.TopicNotFound, pulsar.Timeout)):
        hasty.create_producer(place.topic)
    place.call("DELETE", f"namespaces/{place.space}/autoTopicCreation")
    hasty.create_producer(place.topic).close()


@pytest.mark.parametrize("level", LEVELS)
def test_subscriptions_come_only_where_they_may(hasty: pulsar.Client, place: Place, level: str) -> None:
    hasty.create_producer(place.topic).close()
    place.same(level, "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    with pytest.raises((pulsar.SubscriptionNotFound, pulsar.Timeout)):
        hasty.subscribe(place.topic, "s")


# -- how messages are taken and given --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (("deduplication", "deduplicationEnabled"), "namespace"),
        (("deduplication", "deduplicationEnabled"), "topic"),
        (("deduplication", "deduplication"), "topic"),
    ],
)
def test_what_is_sent_twice_is_stored_once(
    client: pulsar.Client, place: Place, names: tuple[str, str], level: str
) -> None:
    producer = client.create_producer(place.topic, producer_name="p", batching_enabled=False)
    place.set(level, names, True)
    assert place.applied(names[1]) is True
    for number in (1, 1, 2):
        producer.send(b"x", sequence_id=number)
    assert place.call("GET", f"persistent/{place.space}/t/internalStats")["numberOfEntries"] == 2
    producer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_delays_are_kept_unless_they_are_off_or_too_long(
    client: pulsar.Client, place: Place, level: str
) -> None:
    consumer = client.subscribe(place.topic, "s", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(place.topic, batching_enabled=False)
    place.same(level, "delayedDelivery", {"active": False, "tickTime": 1_000})
    producer.send(b"at once", deliver_at=int(time.time() * 1000) + 3_600_000)
    assert consumer.receive(TIMEOUT_MS).data() == b"at once"
    limited = {"active": True, "tickTime": 1_000, "maxDeliveryDelayInMillis": 60_000}
    place.same(level, "delayedDelivery", limited)
    assert "held back" in place.publish({"payload": "x", "deliverAfterMs": 3_600_000})
    assert place.applied("delayedDelivery")["maxDeliveryDelayInMillis"] == 60_000
    producer.close()
    consumer.close()


# -- schemas ---------------------------------------------------------------------------------------------


class Old(Record):  # type: ignore[misc]  # the client's classes have no types
    name = String()


class Strict(Record):  # type: ignore[misc]  # the client's classes have no types
    name = String()
    age = Integer(required=True)


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        ("schemaCompatibilityStrategy", "FORWARD"),
        ("schemaAutoUpdateCompatibilityStrategy", "Forward"),
    ],
)
def test_a_strategy_lets_a_schema_in(client: pulsar.Client, place: Place, policy: str, value: str) -> None:
    client.create_producer(place.topic, schema=AvroSchema(Old)).close()
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(place.topic, schema=AvroSchema(Strict))
    place.call("PUT", f"namespaces/{place.space}/{policy}", value)
    client.create_producer(place.topic, schema=AvroSchema(Strict)).close()


def test_a_topics_own_strategy_lets_a_schema_in(client: pulsar.Client, place: Place) -> None:
    client.create_producer(place.topic, schema=AvroSchema(Old)).close()
    place.call("PUT", f"persistent/{place.space}/t/schemaCompatibilityStrategy", "FORWARD")
    assert place.applied("schemaCompatibilityStrategy") == "FORWARD"
    client.create_producer(place.topic, schema=AvroSchema(Strict)).close()


def test_clients_add_no_schemas_where_they_may_not(client: pulsar.Client, place: Place) -> None:
    client.create_producer(place.topic).close()
    place.call("POST", f"namespaces/{place.space}/isAllowAutoUpdateSchema", False)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(place.topic, schema=AvroSchema(Old))


@pytest.mark.parametrize("level", LEVELS)
def test_producers_without_a_schema_are_refused(client: pulsar.Client, place: Place, level: str) -> None:
    client.create_producer(place.topic, schema=AvroSchema(Old)).close()
    place.same(level, "schemaValidationEnforced", True)
    assert place.applied("schemaValidationEnforced") is True
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(place.topic)


# -- which messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared], ids=lambda kind: kind.name)
def test_a_subscription_gets_what_its_filters_accept(
    client: pulsar.Client, place: Place, kind: ConsumerType, level: str
) -> None:
    consumer = client.subscribe(place.topic, "s", consumer_type=kind)
    wanted = {"filter.expression": 'properties.colour == "red" or key == "always"'}
    place.call("PUT", f"persistent/{place.space}/t/subscription/s/properties", wanted)
    producer = client.create_producer(place.topic, batching_enabled=False)
    producer.send(b"before", properties={"colour": "blue"})
    consumer.acknowledge(consumer.receive(TIMEOUT_MS))

    place.same(level, "entryFilters", {"entryFilterNames": "expression"})
    assert place.applied("entryFilters") == {"entryFilterNames": "expression"}
    producer.send(b"1", properties={"colour": "blue"})
    producer.send(b"2", properties={"colour": "red"})
    producer.send(b"3")
    producer.send(b"4", partition_key="always")
    for body in (b"2", b"4"):
        message = consumer.receive(TIMEOUT_MS)
        assert message.data() == body
        consumer.acknowledge(message)
    wait_until(lambda: place.backlog() == 0, DEADLINE_S, "what is rejected counts as acknowledged")
    counts = place.stats["subscriptions"]["s"]
    assert counts["filterProcessedMsgCount"] == 4
    assert (counts["filterAcceptedMsgCount"], counts["filterRejectedMsgCount"]) == (2, 2)
    assert counts["filterRescheduledMsgCount"] == 0
    producer.close()
    consumer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_entry_filters_that_there_are_not_cannot_be_set(
    place: Place, client: pulsar.Client, level: str
) -> None:
    client.create_producer(place.topic).close()
    with pytest.raises(HTTPError) as refused:
        place.same(level, "entryFilters", {"entryFilterNames": "some.java.Filter"})
    assert refused.value.code == 400
    words = json.loads(refused.value.read())
    assert words["reason"] == "Entry filter 'some.java.Filter' not found"
    assert words["remedy"].startswith("there are expression")
