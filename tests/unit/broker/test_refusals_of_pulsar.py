"""What clients are refused over the binary protocol, with the code and the words of Pulsar 4.2.4.

The answers were recorded from its standalone on 23 November 2026, after a lookup of the topic; `…` stands for
what follows Pulsar's words: a name, or what to do. What differs on purpose stands in
docs/compatibility/refusals.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import NamespaceName
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Peer, Type, World, in_world

_NS = "persistent://public/default"
_DIFFERENT = "Subscription is of different type. Active subscription"
_STICKY = pb.KeySharedMeta(keySharedMode=pb.KeySharedMode.STICKY)
_STICKY.hashRanges.add(start=0, end=100)
_INT = b'{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
_TEXT = b'{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


def _avro(definition: bytes) -> pb.Schema:
    return pb.Schema(name="s", type=pb.Schema.Type.Avro, schema_data=definition)


def _told(answer: Any) -> tuple[str, str]:
    """Name of the code, and the words, of an answer that refuses."""
    for code, words in (("error", "message"), ("error_code", "error_message")):
        if code in answer.DESCRIPTOR.fields_by_name and answer.HasField(code):
            return pb.ServerError.Name(getattr(answer, code)), getattr(answer, words)
    return "", ""


_OPENED = [
    # What is asked for, policies of the namespace, what is open already, and the answer.
    ({"topic": "persistent://public/a b/t"}, {}, [], "InvalidTopicName", "Invalid topic name: …"),
    ({"topic": f"{_NS}/a/b/c"}, {}, [], "InvalidTopicName", "Invalid topic name: …"),
    ({}, {"encryption_required": True}, [], "MetadataError", "Encryption is required…"),
    (
        {"name": "b"},
        {"max_producers_per_topic": 1},
        ["a"],
        "ProducerBusy",
        "Topic reached max producers limit…",
    ),
    (
        {"name": "a"},
        {},
        ["a"],
        "ProducerBusy",
        "Producer with name 'a' is already connected to topic…",
    ),
    ({"name": "b", "mode": 1}, {}, ["a"], "ProducerFenced", "Topic has existing shared producers"),
    ({"name": "b", "mode": 1}, {}, ["!a"], "ProducerFenced", "Topic has an existing exclusive producer: a"),
    ({"name": "b"}, {}, ["!a"], "ProducerBusy", "Topic has an existing exclusive producer: a"),
]


@pytest.mark.parametrize(("asked", "policies", "there", "code", "words"), _OPENED)
def test_producers(
    asked: dict[str, Any], policies: dict[str, Any], there: list[str], code: str, words: str
) -> None:
    async def story(world: World) -> None:
        await _set(world, policies)
        for name in there:
            await _produce(world.peer(), name.lstrip("!"), mode=int(name.startswith("!")))
        answer = await _produce(
            world.peer(), asked.get("name", "p"), asked.get("topic", f"{_NS}/t"), mode=asked.get("mode", 0)
        )
        _check(answer, code, words)

    in_world(story)


async def _produce(peer: Peer, name: str, topic: str = f"{_NS}/t", *, mode: int = 0) -> Any:
    return await peer.producer(
        topic=topic,
        producer_name=name,
        user_provided_producer_name=True,
        producer_access_mode=pb.ProducerAccessMode.Name(mode),
    )


_SUBSCRIBED: list[tuple[dict[str, Any], dict[str, Any], list[str], str, str]] = [
    ({"subscription": ""}, {}, [], "ProducerBusy", "Empty subscription name…"),
    ({"kind": "Exclusive"}, {}, ["Exclusive"], "ConsumerBusy", "Exclusive consumer is already connected"),
    (
        {"kind": "Failover"},
        {},
        ["Shared"],
        "ConsumerBusy",
        f"{_DIFFERENT} type of 'Shared' is different than the connecting consumer's type 'Failover'.",
    ),
    (
        {"kind": "Key_Shared", "keySharedMeta": _STICKY},
        {},
        ["Key_Shared"],
        "ConsumerBusy",
        f"{_DIFFERENT} key_shared mode of 'AUTO_SPLIT' is different than the connecting consumer's…",
    ),
    (
        {"kind": "Key_Shared", "keySharedMeta": pb.KeySharedMeta(keySharedMode=pb.KeySharedMode.STICKY)},
        {},
        [],
        "ConsumerAssignError",
        "Ranges for KeyShared policy must not be empty.",
    ),
    (
        {"kind": "Shared"},
        {"max_consumers_per_topic": 1},
        ["Shared"],
        "ConsumerBusy",
        "Topic reached max consumers limit…",
    ),
    (
        {"kind": "Shared"},
        {"max_consumers_per_subscription": 1},
        ["Shared"],
        "ConsumerBusy",
        "Subscription reached max consumers limit…",
    ),
    (
        {"subscription": "other"},
        {"max_subscriptions_per_topic": 1},
        ["Shared"],
        "NotAllowedError",
        "Exceed the maximum number of subscriptions of the topic…",
    ),
    (
        {"kind": "Shared", "read_compacted": True},
        {},
        [],
        "NotAllowedError",
        "readCompacted only allowed on failover or exclusive subscriptions",
    ),
    (
        {"topic": "non-persistent://public/default/t", "read_compacted": True},
        {},
        [],
        "NotAllowedError",
        "readCompacted only valid on persistent topics",
    ),
    (
        {},
        {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}},
        [],
        "SubscriptionNotFound",
        "Subscription does not exist…",
    ),
]


@pytest.mark.parametrize(("asked", "policies", "there", "code", "words"), _SUBSCRIBED)
def test_consumers(
    asked: dict[str, Any], policies: dict[str, Any], there: list[str], code: str, words: str
) -> None:
    async def story(world: World) -> None:
        await _set(world, policies)
        await world.topic(f"{_NS}/t")
        for kind in there:
            assert _told(await world.peer().consumer(topic=f"{_NS}/t", kind=kind)) == ("", "")
        _check(await world.peer().consumer(**{"topic": f"{_NS}/t", **asked}), code, words)

    in_world(story)


_ASKED: list[tuple[int, dict[str, Any], str, str]] = [
    (Type.SEEK, {"consumer_id": 9, "message_publish_time": 1}, "MetadataError", "Consumer not found…"),
    (
        Type.SEEK,
        {"consumer_id": 1},
        "MetadataError",
        "Message id and message publish time were not present",
    ),
    (Type.UNSUBSCRIBE, {"consumer_id": 9}, "MetadataError", "Consumer not found…"),
    (
        Type.UNSUBSCRIBE,
        {"consumer_id": 1},
        "MetadataError",
        "Unconnected or shared consumer attempting to unsubscribe…",
    ),
    (Type.GET_LAST_MESSAGE_ID, {"consumer_id": 9}, "MetadataError", "Consumer not found…"),
    (Type.GET_SCHEMA, {"topic": f"{_NS}/t"}, "TopicNotFound", f"Topic not found or no-schema {_NS}/t"),
    (Type.LOOKUP, {"topic": "persistent://none/none/t"}, "TopicNotFound", "Namespace not found…"),
    (Type.LOOKUP, {"topic": "nix://a/b/c"}, "InvalidTopicName", "Invalid topic name: …"),
    (
        Type.PARTITIONED_METADATA,
        {"topic": "persistent://none/none/t"},
        "TopicNotFound",
        "Namespace not found…",
    ),
    (
        Type.WATCH_TOPIC_LIST,
        {"namespace": "public/default", "watcher_id": 1, "topics_pattern": "("},
        "InvalidTopicName",
        "Invalid topics pattern: …",
    ),
]


@pytest.mark.parametrize(("kind", "fields", "code", "words"), _ASKED)
def test_requests(kind: int, fields: dict[str, Any], code: str, words: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        for consumer_id in (1, 2):
            await peer.consumer(consumer_id, f"{_NS}/t", consumer_id, kind="Shared")
        _check(await peer.ask(kind, request_id=9, **fields), code, words)

    in_world(story)


def test_schemas_and_partitioned_topics() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(1, f"{_NS}/t", 1, schema=_avro(_INT))
        _check(await peer.producer(2, f"{_NS}/t", 2, schema=_avro(_TEXT)), "IncompatibleSchema", "…")
        _check(await peer.producer(3, f"{_NS}/other", 3, schema=_avro(b"{x")), "IncompatibleSchema", "…")

    in_world(story)


async def _set(world: World, policies: dict[str, Any]) -> None:
    name = NamespaceName("public", "default")
    await world.broker.policies.update_namespace(name, lambda document: document.update(policies))
    await world.broker.apply_policies()


def _check(answer: Any, code: str, words: str) -> None:
    told = _told(answer)
    assert told[0] == code, told
    begin, open_end, _ = words.partition("…")
    assert told[1].startswith(begin) if open_end else told[1] == words, told
