"""What a cluster of Apache Pulsar leaves behind: tenants, topics of all kinds, subscriptions with gaps,
schemas, policies. Written with the official client and the admin API; the same functions look at it again."""

from __future__ import annotations

import json
import time
from typing import Any, Final, Protocol

import pulsar
from pulsar.schema import AvroSchema, JsonSchema, Record, String

from support.official import QUIET, TIMEOUT_MS
from support.standalone import wait_until

NAMESPACE: Final = "acme/orders"
TOPIC: Final = f"persistent://{NAMESPACE}/"
Left = dict[tuple[str, str], list[bytes]]
"""What subscriptions have still to get, by topic and name."""
END: Final = b"end"
"""The last message of each topic, which no subscription acknowledges."""
PARTITIONS: Final = 3
COUNT: Final = 50
"""Messages before the last one, more than fit in one ledger."""
BATCH: Final = 10
LATER_MS: Final = 3_600_000
"""How much later the first message of the topic `delayed` is due."""

POLICIES: Final[dict[str, tuple[str, object]]] = {
    "retention": ("POST", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}),
    "messageTTL": ("POST", 86_400),
    "maxProducersPerTopic": ("POST", 17),
    "schemaCompatibilityStrategy": ("PUT", "FORWARD"),
}
"""Policies of the namespace: path, method and body of the call."""
TOPIC_POLICIES: Final[dict[str, object]] = {
    "maxConsumers": 7,
    "retention": {"retentionTimeInMinutes": 120, "retentionSizeInMB": 200},
    "messageTTL?messageTTL=4000": None,
    "backlogQuota": {"limitSize": 1_000_000, "limitTime": -1, "policy": "producer_exception"},
}
"""Policies of the topic `plain`: path and body of the call."""
TOPIC_POLICIES_FOUND: Final[dict[str, object]] = {
    "maxConsumers": 7,
    "retention": {"retentionTimeInMinutes": 120, "retentionSizeInMB": 200},
    "messageTTL": 4_000,
    "backlogQuotaMap": {
        "destination_storage": {
            "limit": 1_000_000,
            "limitSize": 1_000_000,
            "limitTime": -1,
            "policy": "producer_exception",
        }
    },
}
"""What is found of them."""


class Admin(Protocol):
    """A broker, Pulsar's or ours."""

    broker_url: str

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Calls `/admin/v2/PATH`."""


class OrderOne(Record):  # type: ignore[misc]  # the client has no types
    item = String()


class OrderTwo(Record):  # type: ignore[misc]  # the client has no types
    item = String()
    note = String(default="")


class OrderThree(Record):  # type: ignore[misc]  # the client has no types
    item = String()
    note = String(default="")
    more = String(default="")


def client_of(broker: Admin) -> pulsar.Client:
    return pulsar.Client(broker.broker_url, operation_timeout_seconds=30, logger=QUIET)


def payloads(first: int, last: int) -> list[bytes]:
    """Messages `first` to `last`, the last one excluded."""
    return [b"%d" % number for number in range(first, last)]


def left_of(acknowledged: set[int], count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(count) if number not in acknowledged] + [END]


LEFT: Final[Left] = {
    ("plain", "exclusive"): left_of(set(range(25))),
    ("plain", "shared"): left_of(set(range(0, 40, 2))),
    ("plain", "key-shared"): left_of(set(range(0, COUNT, 3))),
    ("plain", "untouched"): left_of(set()),
    ("batched", "indexes"): left_of({*range(10), *range(12, 17), 33, 35}),
    ("deduplicated", "all"): left_of(set(range(5))),
    ("delayed", "all"): [END],
    ("terminated", "all"): left_of({1, 2, 3}),
}
"""What a subscription has still to get."""

_KINDS: Final = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "key-shared": pulsar.ConsumerType.KeyShared,
}


def subscribe(client: pulsar.Client, topic: str, name: str, **options: Any) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC + topic,
        name,
        consumer_type=_KINDS.get(name, pulsar.ConsumerType.Shared),
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
        **options,
    )


def fill(broker: Admin) -> None:
    """Makes all of it."""
    broker.admin("PUT", "tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["old"]})
    broker.admin("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}})
    for path, (method, body) in POLICIES.items():
        broker.admin(method, f"namespaces/{NAMESPACE}/{path}", body)
    client = client_of(broker)
    _fill_plain(client, "plain")
    _fill_plain(client, "terminated")
    _fill_batched(client)
    _fill_partitions(broker, client)
    _fill_schemas(client)
    _fill_deduplicated(broker, client)
    _fill_delayed(client)
    _fill_compacted(broker, client)
    broker.admin("POST", f"persistent/{NAMESPACE}/terminated/terminate")
    for path, value in TOPIC_POLICIES.items():
        broker.admin("POST", f"persistent/{NAMESPACE}/plain/{path}", value)
    client.close()


def acknowledge(client: pulsar.Client, topic: str, subscription: str, kept: list[bytes]) -> None:
    """Receives all of a topic and acknowledges all but what is `kept`."""
    consumer = subscribe(client, topic, subscription)
    messages: list[pulsar.Message] = []
    while not messages or messages[-1].data() != END:
        messages.append(consumer.receive(TIMEOUT_MS))
    for message in messages:
        if message.data() not in kept:
            consumer.acknowledge(message)
    consumer.close()


def _fill_plain(client: pulsar.Client, topic: str) -> None:
    subscriptions = [name for of, name in LEFT if of == topic]
    for name in subscriptions:
        subscribe(client, topic, name).close()
    producer = client.create_producer(TOPIC + topic, batching_enabled=False)
    for payload in [*payloads(0, COUNT), END]:
        producer.send(payload)
    for name in subscriptions:
        if len(LEFT[topic, name]) <= COUNT:
            acknowledge(client, topic, name, LEFT[topic, name])


def _fill_batched(client: pulsar.Client) -> None:
    producer = client.create_producer(
        TOPIC + "batched",
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=60_000,
    )
    subscribe(client, "batched", "indexes").close()
    for payload in payloads(0, COUNT):
        producer.send_async(payload, lambda result, _: None)
    producer.flush()
    client.create_producer(TOPIC + "batched", batching_enabled=False).send(END)
    acknowledge(client, "batched", "indexes", LEFT["batched", "indexes"])


def _fill_partitions(broker: Admin, client: pulsar.Client) -> None:
    broker.admin("PUT", f"persistent/{NAMESPACE}/parts/partitions", PARTITIONS)
    for partition in range(PARTITIONS):
        topic = f"parts-partition-{partition}"
        subscribe(client, topic, "all").close()
        producer = client.create_producer(TOPIC + topic, batching_enabled=False)
        for payload in [*payloads(0, 10), END]:
            producer.send(payload, properties={"partition": str(partition)})
        acknowledge(client, topic, "all", left_of({partition, 7}, 10))


def _fill_schemas(client: pulsar.Client) -> None:
    for kind, schema in ((OrderOne, AvroSchema(OrderOne)), (OrderTwo, AvroSchema(OrderTwo))):
        producer = client.create_producer(TOPIC + "typed", schema=schema, batching_enabled=False)
        producer.send(kind(item="lamp"))
        producer.close()
    producer = client.create_producer(TOPIC + "json", schema=JsonSchema(OrderOne), batching_enabled=False)
    producer.send(OrderOne(item="desk"))


def _fill_deduplicated(broker: Admin, client: pulsar.Client) -> None:
    subscribe(client, "deduplicated", "all").close()
    broker.admin("POST", f"namespaces/{NAMESPACE}/deduplication", True)
    producer = client.create_producer(
        TOPIC + "deduplicated", producer_name="unique", batching_enabled=False, send_timeout_millis=0
    )
    for payload in [*payloads(0, COUNT), END]:
        producer.send(payload)
    acknowledge(client, "deduplicated", "all", LEFT["deduplicated", "all"])


def _fill_delayed(client: pulsar.Client) -> None:
    subscribe(client, "delayed", "all").close()
    producer = client.create_producer(TOPIC + "delayed", batching_enabled=False)
    producer.send(b"later", deliver_at=int(time.time() * 1000) + LATER_MS)
    producer.send(END)


def _fill_compacted(broker: Admin, client: pulsar.Client) -> None:
    producer = client.create_producer(TOPIC + "compacted", batching_enabled=False)
    for number in range(30):
        producer.send(b"value %d" % number, partition_key=f"key {number % 3}")
    compact(broker)


def compact(broker: Admin) -> None:
    path = f"persistent/{NAMESPACE}/compacted/compaction"
    broker.admin("PUT", path)
    wait_until(lambda: broker.admin("GET", path)["status"] == "SUCCESS", 30, "the topic is compacted")


def backlog(client: pulsar.Client, topic: str, subscription: str, count: int) -> list[bytes]:
    """The first `count` messages that a subscription has still to get; nothing is acknowledged."""
    consumer = subscribe(client, topic, subscription)
    found = [consumer.receive(TIMEOUT_MS).data() for _ in range(count)]
    consumer.close()
    return found


def delivered_by_pulsar(left: Left) -> Left:
    """What a broker of Pulsar's delivers after its start: a batch of which a part is acknowledged comes as a
    whole, as long as the cursor's state is in its node."""
    found = dict(left)
    kept = left["batched", "indexes"]
    batches = [payloads(first, first + BATCH) for first in range(0, COUNT, BATCH)]
    found["batched", "indexes"] = [
        payload for batch in batches if set(batch) & set(kept) for payload in batch
    ] + [END]
    return found


NEW: Final = [b"new %d" % number for number in range(5)]
"""Messages that are added to a topic."""


COMPACTED: Final = {f"key {key}": b"value %d" % (27 + key) for key in range(3)}
"""The last values of the topic `compacted`, by key."""
COMPACTED_LATER: Final = {**COMPACTED, "key 1": b"newer", "key 3": b"new"}


def write_on(broker: Admin, client: pulsar.Client) -> Left:
    """Writes to what is there, and acknowledges more of it; returns what is left then."""
    # Looks for expired messages at once: there are none.
    method, ttl = POLICIES["messageTTL"]
    broker.admin(method, f"namespaces/{NAMESPACE}/messageTTL", ttl)
    producer = client.create_producer(TOPIC + "plain", batching_enabled=False)
    for payload in NEW:
        producer.send(payload)
    left = {key: [*of, *NEW] if key[0] == "plain" else list(of) for key, of in LEFT.items()}
    _acknowledge_more(client, left, ("plain", "shared"), {b"41", b"45", NEW[1], NEW[3]})
    _acknowledge_more(client, left, ("plain", "key-shared"), {b"1", b"2", b"4", b"49"})
    _acknowledge_more(client, left, ("batched", "indexes"), {b"11", b"20", b"21", b"34"})
    _send_again(client)
    schema = AvroSchema(OrderThree)
    client.create_producer(TOPIC + "typed", schema=schema).send(OrderThree(item="lamp", more="bulb"))
    subscribe(client, "made-later", "all").close()
    producer = client.create_producer(TOPIC + "made-later", batching_enabled=False)
    for payload in NEW:
        producer.send(payload)
    left["made-later", "all"] = list(NEW)
    producer = client.create_producer(TOPIC + "compacted", batching_enabled=False)
    for key in ("key 1", "key 3"):
        producer.send(COMPACTED_LATER[key], partition_key=key)
    compact(broker)
    assert compacted(client) == COMPACTED_LATER
    return left


def _acknowledge_more(
    client: pulsar.Client, left: Left, of: tuple[str, str], acknowledged: set[bytes]
) -> None:
    consumer = subscribe(client, *of)
    for message in [consumer.receive(TIMEOUT_MS) for _ in left[of]]:
        if message.data() in acknowledged:
            consumer.acknowledge(message)
    consumer.close()
    left[of] = [payload for payload in left[of] if payload not in acknowledged]


def _send_again(client: pulsar.Client) -> None:
    """Sends messages again that the broker has: nothing may be added."""
    producer = client.create_producer(
        TOPIC + "deduplicated", producer_name="unique", initial_sequence_id=44, batching_enabled=False
    )
    for payload in payloads(45, COUNT):
        producer.send(payload)
    producer.close()


def check_written_on(broker: Admin, client: pulsar.Client) -> None:
    """What `write_on` added to schemas, deduplication and the compacted topic."""
    assert compacted(client) == COMPACTED_LATER
    assert [version for version, *_ in versions_of(broker, "typed")] == [0, 1, 2]
    producer = client.create_producer(TOPIC + "deduplicated", producer_name="unique", batching_enabled=False)
    assert producer.last_sequence_id() == COUNT
    producer.close()
    _send_again(client)


def compacted(client: pulsar.Client) -> dict[str, bytes]:
    """The last value of each key, as readers of the compacted topic get it; each key once."""
    reader = client.create_reader(TOPIC + "compacted", pulsar.MessageId.earliest, is_read_compacted=True)
    found: list[tuple[str, bytes]] = []
    while reader.has_message_available():
        message = reader.read_next(TIMEOUT_MS)
        found.append((message.partition_key(), message.data()))
    reader.close()
    assert len(dict(found)) == len(found), "a key comes twice"
    return dict(found)


def versions_of(broker: Admin, topic: str) -> list[tuple[int, str, str]]:
    """Version, type and definition of each schema of a topic."""
    said = broker.admin("GET", f"schemas/{NAMESPACE}/{topic}/schemas")["getSchemaResponses"]
    return [
        (each["version"], each["type"], json.dumps(json.loads(each["data"]), sort_keys=True)) for each in said
    ]
