"""Non-persistent topics: what is delivered, what is dropped, what clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import NotAllowedError, PreconditionFailedError, TopicNotFoundError
from magnetar.broker.nonpersistent.nonpersistent_subscription import NonPersistentSubscription
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from support.sessions import Peer, Type, World, in_world, send

TOPIC = "non-persistent://public/default/t"
NAME = TopicName.parse(TOPIC)


def keyed(sequence_id: int, key: str) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1, partition_key=key
    )
    return encode_send(1, sequence_id, 1, build_entry(metadata, key.encode()))


def batch(sequence_id: int, messages: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1, num_messages_in_batch=messages
    )
    return encode_send(1, sequence_id, messages, build_entry(metadata, b"batch"))


async def pair(world: World, **consumer: Any) -> tuple[Peer, Peer]:
    """A producer and a consumer."""
    publisher, receiver = world.peer(), world.peer()
    await receiver.consumer(topic=TOPIC, **consumer)
    await publisher.producer(topic=TOPIC)
    return publisher, receiver


def subscription(world: World, name: str = "s") -> NonPersistentSubscription:
    topic = world.broker.nonpersistent.find(NAME)
    assert topic is not None
    return topic.subscriptions[name]


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
def test_what_is_sent_reaches_who_asks_for_it(kind: str) -> None:
    async def story(world: World) -> None:
        publisher, receiver = await pair(world, kind=kind, permits=10)
        publisher.send(send(1, 0, b"a"), send(1, 1, b"b"), send(1, 2, b"c"))
        await world.settle()
        assert receiver.bodies == [b"a", b"b", b"c"]
        assert {message.position for message in receiver.messages} == {Position(0, 0)}
        assert publisher.receipts == [(1, i, Position(0, 0)) for i in range(3)]
        assert not world.broker.intake.bytes_used

    in_world(story)


def test_nothing_is_stored() -> None:
    async def story(world: World) -> None:
        publisher, _ = await pair(world)
        publisher.send(send(1, 0))
        await world.settle()
        assert publisher.receipts
        assert await world.logs.names("public/default") == []
        late = world.peer()
        await late.consumer(topic=TOPIC, subscription="late", permits=10)
        await world.settle()
        assert late.messages == []

    in_world(story)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
def test_without_permits_messages_are_dropped_and_counted(kind: str) -> None:
    async def story(world: World) -> None:
        publisher, receiver = await pair(world, kind=kind, permits=2)
        publisher.send(*(send(1, i, b"%d" % i) for i in range(5)))
        await world.settle()
        assert receiver.bodies == [b"0", b"1"]
        assert subscription(world).messages_dropped == 3
        receiver.send(encode_flow(1, 1))
        publisher.send(send(1, 5, b"5"))
        await world.settle()
        assert receiver.bodies == [b"0", b"1", b"5"]
        assert len(publisher.receipts) == 6

    in_world(story)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
def test_a_batch_costs_a_permit_for_each_message(kind: str) -> None:
    async def story(world: World) -> None:
        publisher, receiver = await pair(world, kind=kind, permits=4)
        publisher.send(batch(0, 3), batch(3, 3), batch(6, 3))
        await world.settle()
        assert len(receiver.messages) == 2, "the balance goes below zero by one batch, then nothing"
        assert subscription(world).consumers[0].permits == -2
        assert subscription(world).messages_dropped == 3

    in_world(story)


def test_a_connection_that_takes_no_bytes_loses_messages() -> None:
    async def story(world: World) -> None:
        publisher, receiver = await pair(world, permits=10)
        receiver.session.transport_writable = False
        publisher.send(send(1, 0, b"lost"))
        await world.settle()
        receiver.session.transport_writable = True
        publisher.send(send(1, 1, b"kept"))
        await world.settle()
        assert receiver.bodies == [b"kept"]
        assert len(publisher.receipts) == 2

    in_world(story)


def test_shared_consumers_take_turns_and_the_best_priority_goes_first() -> None:
    async def story(world: World) -> None:
        publisher, first = await pair(world, kind="Shared", permits=2)
        second, spare = world.peer(), world.peer()
        await second.consumer(topic=TOPIC, kind="Shared", permits=2)
        await spare.consumer(topic=TOPIC, kind="Shared", permits=9, priority_level=1)
        publisher.send(*(send(1, i, b"%d" % i) for i in range(6)))
        await world.settle()
        assert (len(first.messages), len(second.messages)) == (2, 2)
        assert spare.bodies == [b"4", b"5"]
        assert subscription(world).messages_dropped == 0

    in_world(story)


def test_a_key_stays_with_one_consumer() -> None:
    async def story(world: World) -> None:
        publisher, first = await pair(world, kind="Key_Shared", permits=1000)
        second = world.peer()
        await second.consumer(topic=TOPIC, kind="Key_Shared", permits=1000, consumer_name="second")
        publisher.send(*(keyed(i, f"k{i % 10}") for i in range(100)))
        await world.settle()
        assert first.bodies
        assert second.bodies
        assert not set(first.bodies) & set(second.bodies)
        assert len(first.bodies) + len(second.bodies) == 100

    in_world(story)


def test_failover_goes_to_the_next_when_the_active_one_leaves() -> None:
    async def story(world: World) -> None:
        publisher, first = await pair(world, kind="Failover", permits=10)
        second = world.peer()
        await second.consumer(topic=TOPIC, kind="Failover", permits=10)
        publisher.send(send(1, 0, b"a"))
        await world.settle()
        first.session.lost()
        publisher.send(send(1, 1, b"b"))
        await world.settle()
        assert (first.bodies, second.bodies) == ([b"a"], [b"b"])
        told = [change.is_active for change in second.commands(Type.ACTIVE_CONSUMER_CHANGE)]
        assert told == [False, True]

    in_world(story)


def test_exclusive_is_for_one_and_types_do_not_mix() -> None:
    async def story(world: World) -> None:
        await pair(world)
        busy = await world.peer().consumer(topic=TOPIC)
        mixed = await world.peer().consumer(topic=TOPIC, kind="Shared")
        assert busy.error == mixed.error == pb.ConsumerBusy

    in_world(story)


def test_a_reader_gets_what_comes_next_and_leaves_nothing() -> None:
    async def story(world: World) -> None:
        publisher, reader = await pair(world, durable=False, subscription="reader", permits=10)
        publisher.send(send(1, 0, b"a"))
        await world.settle()
        assert reader.bodies == [b"a"]
        reader.session.lost()
        topic = world.broker.nonpersistent.find(NAME)
        assert topic is not None
        assert not topic.subscriptions

    in_world(story)


def test_there_is_no_last_message_and_seek_does_nothing() -> None:
    async def story(world: World) -> None:
        _, receiver = await pair(world)
        refused = await receiver.ask(Type.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=7)
        assert refused.error == pb.NotAllowedError
        done = await receiver.ask(Type.SEEK, consumer_id=1, request_id=8, message_publish_time=5)
        assert not hasattr(done, "error")
        assert not receiver.commands(Type.CLOSE_CONSUMER)

    in_world(story)


def test_exclusive_producers_get_epochs() -> None:
    async def story(world: World) -> None:
        first, second = world.peer(), world.peer()
        mode = pb.ProducerAccessMode.Exclusive
        granted = await first.producer(topic=TOPIC, producer_access_mode=mode)
        refused = await second.producer(topic=TOPIC, producer_access_mode=mode)
        assert granted.topic_epoch == 0
        assert refused.error == pb.ProducerFenced
        first.session.lost()
        again = await second.producer(topic=TOPIC, producer_access_mode=mode, request_id=9)
        assert again.topic_epoch == 1

    in_world(story)


def test_deletion_and_unload_send_clients_away() -> None:
    async def story(world: World) -> None:
        publisher, receiver = await pair(world)
        with pytest.raises(PreconditionFailedError):
            await world.broker.delete_topic(NAME)
        await world.broker.unload(NAME)
        await world.until(lambda: publisher.commands(Type.CLOSE_PRODUCER), "CLOSE_PRODUCER")
        await world.until(lambda: receiver.commands(Type.CLOSE_CONSUMER), "CLOSE_CONSUMER")
        with pytest.raises(TopicNotFoundError):
            await world.broker.any_topic(NAME, create=False)
        await publisher.producer(topic=TOPIC, request_id=9)
        await world.broker.delete_topic(NAME, force=True)
        assert world.broker.loaded(NAME) is None

    in_world(story)


def test_what_needs_a_log_is_refused() -> None:
    async def story(world: World) -> None:
        with pytest.raises(NotAllowedError):
            await world.broker.topic(NAME)

    in_world(story)
