"""Subscriptions to all topics that a wildcard names."""

from __future__ import annotations

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.levels import Levels, in_namespace, is_wildcard
from magnetar.base.names import NamespaceName, TopicName
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from support.sessions import Type, World, command, in_world, send

PLACE = "persistent://public/default/"


@pytest.mark.parametrize(
    ("wildcard", "names", "others"),
    [
        ("*.chat", ["nyc.chat", "x.chat"], ["chat", "a.b.chat", "nyc.chats", "nyc.chat.x"]),
        ("nyc.**", ["nyc.a", "nyc.a.b"], ["nyc", "nycx.a", "a.nyc.b"]),
        ("nyc.*.loot", ["nyc.group-a.loot"], ["nyc.loot", "nyc.a.b.loot"]),
        ("**.loot", ["a.loot", "a.b.loot"], ["loot", "a.loot.b"]),
        ("a.**.z.*", ["a.b.z.c", "a.b.z.z.c"], ["a.z.c", "a.b.z"]),
        ("**", ["a", "a.b"], []),
        ("*", ["a"], ["a.b"]),
    ],
)
def test_levels(wildcard: str, names: list[str], others: list[str]) -> None:
    levels = Levels(wildcard)
    assert [name for name in [*names, *others] if levels.match_local(name)] == names


def test_what_is_a_wildcard() -> None:
    assert [text for text in ("a", "a.*", "a*", "*x.b", "**", "a.**.b") if is_wildcard(text)] == [
        "a.*",
        "**",
        "a.**.b",
    ]
    assert not is_wildcard(".".join(["*"] * 65))
    namespace = NamespaceName("t", "n")
    for text in ("a.*", "t/n/a.*", "persistent://t/n/a.*"):
        assert in_namespace(text, namespace).match("t/n/a.b")


def test_many_levels_take_no_long_time() -> None:
    levels = Levels(".".join(["**"] * 60))
    assert not levels.match_local(".".join(["a"] * 50))
    assert levels.work < 10_000


# Topics have no order among each other: bodies are compared sorted.


async def publish(world: World, name: str, *bodies: bytes) -> None:
    peer = world.peer()
    assert (await peer.producer(topic=PLACE + name)).producer_name
    peer.send(*(send(1, number, body) for number, body in enumerate(bodies)))
    await world.until(lambda: len(peer.receipts) == len(bodies), "receipts")


async def backlog(world: World, name: str) -> int:
    topic = await world.topic(PLACE + name)
    return topic.subscriptions["s"].backlog_entries


def test_messages_of_all_topics_and_of_those_that_come_later() -> None:
    async def story(world: World) -> None:
        await publish(world, "nyc.a", b"1")
        await publish(world, "nyc.b.c", b"2")
        await publish(world, "sfo.a", b"x")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "nyc.**", kind="Shared", permits=100)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        assert sorted(peer.bodies) == [b"1", b"2"]
        await publish(world, "nyc.new", b"3", b"4")
        await world.until(lambda: len(peer.messages) == 4, "messages of a topic that came later")
        assert sorted(peer.bodies) == [b"1", b"2", b"3", b"4"]
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        assert [await backlog(world, name) for name in ("nyc.a", "nyc.b.c", "nyc.new")] == [0, 0, 0]
        topic = await world.topic(PLACE + "sfo.a")
        assert "s" not in topic.subscriptions

    in_world(story)


def test_permits_count_for_all_topics_together() -> None:
    async def story(world: World) -> None:
        for name in ("a.x", "b.x", "c.x"):
            await publish(world, name, b"1", b"2", b"3")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "*.x", kind="Shared", permits=4)
        await world.settle()
        assert len(peer.messages) == 4
        peer.send(encode_flow(1, 5))
        await world.until(lambda: len(peer.messages) == 9, "the rest")

    in_world(story)


def test_answers_to_acknowledgements_redelivery_and_unsubscribing() -> None:
    async def story(world: World) -> None:
        for name in ("a.x", "b.x"):
            await publish(world, name, b"1")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "*.x", kind="Shared", permits=100)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        ids = [
            pb.MessageIdData(ledgerId=each.position.ledger_id, entryId=each.position.entry_id)
            for each in peer.messages
        ]
        kind = pb.CommandAck.Individual
        answer = await peer.ask(Type.ACK, consumer_id=1, ack_type=kind, message_id=ids, request_id=70)
        assert not answer.HasField("error")
        lost = pb.MessageIdData(ledgerId=999_999, entryId=0)
        answer = await peer.ask(Type.ACK, consumer_id=1, ack_type=kind, message_id=[lost], request_id=71)
        assert answer.error == pb.ConsumerNotFound
        await publish(world, "a.x", b"again")
        await world.until(lambda: len(peer.messages) == 3, "one more")
        peer.send(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1))
        await world.until(lambda: len(peer.messages) == 4, "the same again")
        assert peer.messages[3].position == peer.messages[2].position
        await peer.ask(Type.UNSUBSCRIBE, consumer_id=1, request_id=72)
        for name in ("a.x", "b.x"):
            topic = await world.topic(PLACE + name)
            assert "s" not in topic.subscriptions

    in_world(story)


def test_unloads_deletions_and_the_end_of_the_client() -> None:
    async def story(world: World) -> None:
        await publish(world, "a.x", b"1")
        await publish(world, "b.x", b"2")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "*.x", permits=100)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        await world.broker.unload(TopicName.parse(PLACE + "a.x"))
        await world.settle()
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        await world.settle()
        await publish(world, "a.x", b"3")
        await world.until(lambda: len(peer.messages) == 3, "after the unload")
        await world.broker.delete_topic(TopicName.parse(PLACE + "b.x"), force=True)
        await world.settle()
        await publish(world, "b.x", b"4")
        await world.until(lambda: len(peer.messages) == 4, "of the topic made anew")
        peer.session.lost()
        topic = await world.topic(PLACE + "a.x")
        assert topic.subscriptions["s"].consumers == []
        assert len(world.broker.watchers) == 0

    in_world(story)


def test_refusals() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        answer = await peer.producer(topic=PLACE + "a.*", request_id=1)
        assert answer.error == pb.NotAllowedError
        answer = await peer.consumer(topic=PLACE + "a.*", request_id=2, durable=False)
        assert answer.error == pb.NotAllowedError
        await publish(world, "a.x", b"1")
        first = await peer.consumer(topic=PLACE + "a.x", consumer_id=5, request_id=3)
        assert not isinstance(first, pb.CommandError)
        answer = await peer.consumer(topic=PLACE + "a.*", consumer_id=6, request_id=4)
        assert answer.error == pb.ConsumerBusy
        answer = await peer.ask(Type.PARTITIONED_METADATA, topic=PLACE + "a.**", request_id=9)
        assert answer.partitions == 0

    in_world(story)


def test_a_topic_of_that_very_name_is_that_topic() -> None:
    async def story(world: World) -> None:
        await world.broker.create_topic(TopicName.parse(PLACE + "a.*"))
        await publish(world, "a.x", b"1")
        await publish(world, "a.*", b"2")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "a.*", permits=100)
        await world.settle()
        assert sorted(peer.bodies) == [b"2"]

    in_world(story)


class _ByName:
    """A provider that believes what it is told."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())


def test_rights_on_the_namespace_or_on_the_wildcard_itself() -> None:
    async def story(world: World) -> None:
        await publish_as(world, "root", "nyc.a", b"1")
        await world.broker.policies.update_namespace(
            NamespaceName.parse("public/default"),
            lambda document: document.update(
                auth_policies={
                    "namespace_auth": {"all": ["consume"]},
                    "destination_auth": {
                        PLACE + "nyc.**": {"some": ["consume"]},
                        PLACE + "nyc.a": {"one": ["consume"]},
                    },
                }
            ),
        )
        outcomes = {}
        for role in ("all", "some", "one", "none"):
            peer = world.peer(connected=False)
            peer.send(connect(role))
            await world.settle()
            answer = await peer.consumer(topic=PLACE + "nyc.**", subscription=role, permits=9)
            outcomes[role] = answer.error if isinstance(answer, pb.CommandError) else len(peer.messages)
            await world.settle()
            outcomes[role] = outcomes[role] or len(peer.messages)
        denied = pb.AuthorizationError
        assert outcomes == {"all": 1, "some": 1, "one": denied, "none": denied}

    chain = Authentication({"name": _ByName()})
    in_world(story, authentication=chain, superuser_roles=frozenset(("root",)))


def connect(role: str) -> bytes:
    data = {"auth_method_name": "name", "auth_data": role.encode()}
    return command(Type.CONNECT, client_version="test", protocol_version=19, **data)


async def publish_as(world: World, role: str, name: str, body: bytes) -> None:
    peer = world.peer(connected=False)
    peer.send(connect(role))
    await world.settle()
    await peer.producer(topic=PLACE + name)
    peer.send(send(1, 0, body))
    await world.until(lambda: peer.receipts, "a receipt")


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Key_Shared"])
def test_partitions_and_all_kinds_of_subscriptions(kind: str) -> None:
    async def story(world: World) -> None:
        await world.broker.policies.create_partitioned(TopicName.parse(PLACE + "nyc.p"), 2)
        await publish(world, "nyc.p-partition-0", b"1", b"2")
        await publish(world, "nyc.p-partition-1", b"3")
        peer = world.peer()
        await peer.consumer(topic=PLACE + "nyc.*", kind=kind, permits=100)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        assert sorted(peer.bodies) == [b"1", b"2", b"3"]
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        assert [await backlog(world, f"nyc.p-partition-{number}") for number in (0, 1)] == [0, 0]

    in_world(story)


def test_a_seek_rewinds_every_topic() -> None:
    async def story(world: World) -> None:
        for name in ("a.x", "b.x"):
            await publish(world, name, name.encode())
        peer = world.peer()
        await peer.consumer(topic=PLACE + "*.x", kind="Shared", permits=100)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        answer = await peer.ask(Type.SEEK, consumer_id=1, request_id=80, message_publish_time=0)
        assert not isinstance(answer, pb.CommandError)
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        await world.until(lambda: len(peer.messages) == 4, "the same once more")

    in_world(story)
