"""Delayed messages, as a client sees them."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.broker.delayed.due_time import deliver_at_ms, may_be_delayed
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from support.sessions import Peer, Type, World, command, entry, in_world, send

TICK_MS = 32


def delayed_entry(due_ms: int, body: bytes = b"later", **more: object) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        deliver_at_time=due_ms,
        **more,  # type: ignore[arg-type]  # fields of the message
    )
    return build_entry(metadata, body)


def send_delayed(due_ms: int, body: bytes = b"later", **more: object) -> bytes:
    return encode_send(1, 0, 1, delayed_entry(due_ms, body, **more))


def pass_time(world: World, ms: int) -> None:
    world.clock.advance(ms)
    world.broker.alarms.ring()


def test_the_time_is_found_and_its_tag_in_a_payload_is_not_taken_for_one() -> None:
    assert deliver_at_ms(delayed_entry(1234)) == 1234
    assert not may_be_delayed([entry(b"\x98\x01\xd2\x09")])
    by_chance = entry(b"x", producer="\u0618\x01")
    assert may_be_delayed([by_chance])
    assert deliver_at_ms(by_chance) == 0
    without_checksum = delayed_entry(1234)[6:]
    assert may_be_delayed([without_checksum])
    assert deliver_at_ms(without_checksum) == 1234
    assert not may_be_delayed([entry(b"x")])
    assert may_be_delayed([entry(b"x"), delayed_entry(1)])
    large = entry(b"\x98\x01" * 5_000)
    assert not may_be_delayed([large])
    assert may_be_delayed([large, delayed_entry(1, b"x" * 5_000)])
    assert deliver_at_ms(delayed_entry(-5)) == 0


@pytest.mark.parametrize(
    "damaged", [b"", b"\x98\x01", b"\x00\x00\x00\x02\x98\x01", b"\x00\x00\xff\xff\x98\x01"]
)
def test_a_damaged_entry_is_not_delayed(damaged: bytes) -> None:
    assert deliver_at_ms(damaged) == 0


async def shared_pair(world: World, kind: str = "Shared") -> Peer:
    peer = world.peer()
    await peer.producer()
    await peer.consumer(kind=kind, permits=100)
    return peer


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_delayed_message_comes_at_its_time_and_blocks_nobody(kind: str) -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world, kind)
        now_ms = world.clock.now_ms()
        peer.send(send_delayed(now_ms + 5_000), send(1, 1, b"now"))
        await world.until(lambda: peer.bodies, "the other message")
        pass_time(world, 4_999)
        await world.settle()
        assert peer.bodies == [b"now"]
        pass_time(world, 1 + TICK_MS)
        await world.until(lambda: len(peer.bodies) == 2, "the delayed message")
        assert peer.bodies == [b"now", b"later"]
        assert peer.messages[1].redelivery_count == 0
        assert not len(world.broker.alarms)

    in_world(story)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_ordered_subscriptions_know_no_delays(kind: str) -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world, kind)
        peer.send(send_delayed(world.clock.now_ms() + 5_000))
        await world.until(lambda: peer.bodies, "the message")

    in_world(story)


def test_a_time_in_the_past_is_now() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() - 1), send_delayed(world.clock.now_ms()))
        await world.until(lambda: len(peer.bodies) == 2, "both")

    in_world(story)


def test_a_due_message_waits_for_permits() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(kind="Shared", permits=1)
        now_ms = world.clock.now_ms()
        peer.send(send_delayed(now_ms + 100, b"1"), send(1, 1, b"now"))
        await world.until(lambda: peer.bodies, "the other message")
        pass_time(world, 1_000)
        await world.settle()
        assert peer.bodies == [b"now"]
        peer.send(encode_flow(1, 1))
        await world.until(lambda: len(peer.bodies) == 2, "the delayed message")

    in_world(story)


def test_held_messages_survive_the_absence_of_consumers_without_another_read() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() + 1_000))
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.delayed_entries, "held")
        peer.send(command(Type.CLOSE_CONSUMER, consumer_id=1, request_id=7))
        await peer.answer(7)
        assert subscription.delayed_entries == 1
        pass_time(world, 2_000)
        await peer.consumer(kind="Shared", request_id=8, permits=10)
        await world.until(lambda: peer.bodies, "the message")
        assert peer.bodies == [b"later"]

    in_world(story)


def test_held_messages_survive_an_unload() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() + 1_000), send(1, 1, b"now"))
        await world.until(lambda: peer.bodies, "the other message")
        peer.ack(1, peer.messages[0].position)
        topic = await world.topic()
        await world.broker.unload(topic.name)
        assert not len(world.broker.alarms)
        await peer.consumer(2, request_id=8, kind="Shared", permits=10)
        await world.settle()
        assert peer.bodies == [b"now"]
        pass_time(world, 1_000 + TICK_MS)
        await world.until(lambda: len(peer.bodies) == 2, "the delayed message")

    in_world(story)


def test_a_change_to_an_ordered_type_delivers_at_once() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() + 1_000))
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.delayed_entries, "held")
        peer.send(command(Type.CLOSE_CONSUMER, consumer_id=1, request_id=7))
        await peer.consumer(2, request_id=8, permits=10)
        await world.until(lambda: peer.bodies, "the message")
        assert not subscription.delayed_entries

    in_world(story)


def test_a_seek_keeps_what_is_still_to_come_and_an_unsubscribe_nothing() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() + 1_000))
        topic = await world.topic()
        subscription = topic.subscriptions["s"]
        await world.until(lambda: subscription.delayed_entries, "held")
        await subscription.seek(topic.log.first_position)
        await peer.consumer(2, request_id=8, kind="Shared", permits=10)
        pass_time(world, 1_000 + TICK_MS)
        await world.until(lambda: peer.bodies, "the message")
        await world.settle()
        assert len(peer.bodies) == 1
        peer.send(send_delayed(world.clock.now_ms() + 1_000))
        await world.until(lambda: subscription.delayed_entries, "held")
        await subscription.seek(topic.log.next_position(topic.log.last_position))
        assert not subscription.delayed_entries
        await peer.consumer(3, request_id=9, kind="Shared", permits=10)
        peer.send(send_delayed(world.clock.now_ms() + 1_000))
        await world.until(lambda: subscription.delayed_entries, "held")
        await topic.drop_subscription(subscription)
        assert not len(world.broker.alarms)

    in_world(story)


def test_what_is_acknowledged_while_it_is_held_does_not_come() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        now_ms = world.clock.now_ms()
        peer.send(send_delayed(now_ms + 1_000, b"1"), send_delayed(now_ms + 2_000, b"2"))
        topic = await world.topic()
        subscription = topic.subscriptions["s"]
        await world.until(lambda: subscription.delayed_entries == 2, "held")
        first = topic.log.first_position
        subscription.cursor.ack([Position(first.ledger_id, first.entry_id)])
        pass_time(world, 3_000)
        await world.until(lambda: peer.bodies, "the second message")
        await world.settle()
        assert peer.bodies == [b"2"]

    in_world(story)


def test_a_negative_acknowledgement_brings_a_delayed_message_again() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        peer.send(send_delayed(world.clock.now_ms() + 100))
        pass_time(world, 0)
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.delayed_entries, "held")
        pass_time(world, 1_000)
        await world.until(lambda: peer.bodies, "the message")
        position = peer.messages[0].position
        ids = [pb.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)]
        peer.send(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=ids))
        await world.until(lambda: len(peer.bodies) == 2, "the message again")
        assert peer.messages[1].redelivery_count == 1

    in_world(story)


def test_where_it_is_switched_off_messages_come_at_once() -> None:
    async def story(world: World) -> None:
        peer = await shared_pair(world)
        topic = await world.topic()
        topic.subscriptions["s"].keep(SubscriptionLimits(delayed_delivery=False))
        peer.send(send_delayed(world.clock.now_ms() + 5_000))
        await world.until(lambda: peer.bodies, "the message")

    in_world(story)
