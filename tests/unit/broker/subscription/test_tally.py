"""What the broker counts of its consumers: unacknowledged messages, acknowledgements, what was given back."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.broker.subscription.subscription import Subscription
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import encode_send
from magnetar.wire.payload import build_batch, build_entry
from support.sessions import Peer, Type, World, command, in_world

INDIVIDUAL = pb.CommandAck.AckType.Individual
CUMULATIVE = pb.CommandAck.AckType.Cumulative
KINDS = ["Exclusive", "Shared", "Failover", "Key_Shared"]
SHARING = ["Shared", "Key_Shared"]


def batch(count: int, sequence_id: int) -> bytes:
    """A SEND of a batch of so many messages."""
    body = build_batch((pb.SingleMessageMetadata(), b"m") for _ in range(count))
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        num_messages_in_batch=count,
        uncompressed_size=len(body),
    )
    return encode_send(1, sequence_id, count, build_entry(metadata, body))


async def sent(world: World, kind: str, *counts: int) -> tuple[Peer, Subscription]:
    """A consumer that got batches of so many messages, and its subscription."""
    peer = world.peer()
    await peer.producer()
    await peer.consumer(kind=kind, permits=1000, consumer_name="c")
    peer.send(*(batch(count, number * 100) for number, count in enumerate(counts)))
    await world.until(lambda: len(peer.messages) == len(counts), "batches")
    return peer, (await world.topic()).subscriptions["s"]


def ack_part(position: Position, left: int, size: int) -> bytes:
    """An ACK of a batch of `size` messages, of which those whose bit is set in `left` stay unacknowledged."""
    message_id = pb.MessageIdData(
        ledgerId=position.ledger_id, entryId=position.entry_id, ack_set=[left], batch_size=size
    )
    return command(Type.ACK, consumer_id=1, ack_type=INDIVIDUAL, message_id=[message_id])


def unacked(subscription: Subscription) -> list[int]:
    return [subscription.unacked_of(consumer) for consumer in subscription.consumers]


@pytest.mark.parametrize("kind", KINDS)
def test_an_acknowledged_batch_takes_all_its_messages(kind: str) -> None:
    """Entries were taken off where messages had been added."""

    async def story(world: World) -> None:
        peer, subscription = await sent(world, kind, 10, 10, 10)
        assert unacked(subscription) == [30]
        peer.ack(1, peer.messages[1].position)
        assert unacked(subscription) == [20]
        peer.ack(1, peer.messages[0].position, peer.messages[2].position)
        assert unacked(subscription) == [0]
        assert subscription.tally.acked == subscription.consumers[0].acks == 30

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_a_batch_are_counted_one_by_one(kind: str) -> None:
    """What was acknowledged of a batch counted as unacknowledged until the batch was acknowledged whole."""

    async def story(world: World) -> None:
        peer, subscription = await sent(world, kind, 10, 10)
        first = peer.messages[0].position
        peer.send(ack_part(first, 0b11_1110_0000, 10))
        assert unacked(subscription) == [15]
        peer.send(ack_part(first, 0b11_1100_0000, 10), ack_part(first, 0b11_1100_0000, 10))
        assert unacked(subscription) == [14]
        peer.send(ack_part(first, 0, 10))
        assert unacked(subscription) == [10]
        assert subscription.tally.acked == 10

    in_world(story)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_a_cumulative_acknowledgement_counts_while_more_was_sent(kind: str) -> None:
    """Nothing was taken off before the last of all was acknowledged."""

    async def story(world: World) -> None:
        peer, subscription = await sent(world, kind, 10, 10, 10)
        middle = peer.messages[1].position
        message_id = pb.MessageIdData(ledgerId=middle.ledger_id, entryId=middle.entry_id)
        peer.send(command(Type.ACK, consumer_id=1, ack_type=CUMULATIVE, message_id=[message_id]))
        assert unacked(subscription) == [10]
        assert subscription.tally.acked == 20

    in_world(story)


@pytest.mark.parametrize("kind", SHARING)
def test_the_rest_of_a_batch_that_expired_is_held_no_longer(kind: str) -> None:
    """The cursor had the entry already, so the consumer kept it for good and was blocked by it at last."""

    async def story(world: World) -> None:
        peer, subscription = await sent(world, kind, 10, 10)
        first = peer.messages[0].position
        peer.send(ack_part(first, 0b1, 10))
        await subscription.expire_to(first)
        peer.send(ack_part(first, 0, 10))
        assert unacked(subscription) == [10]
        assert not [held for held in subscription.consumers[0].pending if held == first]

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_back_is_counted_and_unacknowledged_once(kind: str) -> None:
    async def story(world: World) -> None:
        peer, subscription = await sent(world, kind, 10, 5, 5)
        peer.ack(1, peer.messages[0].position)
        left = 10
        peer.send(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[]))
        await world.until(lambda: len(peer.messages) == 5, "the rest again")
        if kind in SHARING:
            assert subscription.tally.redelivered == subscription.consumers[0].redelivered == left
            assert unacked(subscription) == [left]
        else:  # by the average of 20 messages in 3 entries
            assert subscription.tally.redelivered == subscription.consumers[0].redelivered == 13
            assert unacked(subscription) == [12]
        peer.ack(1, peer.messages[1].position, peer.messages[2].position)
        assert unacked(subscription) == [0]

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_over_from_before_a_seek_or_a_lost_connection(kind: str) -> None:
    async def story(world: World) -> None:
        _, subscription = await sent(world, kind, 10, 10)
        await subscription.seek((await world.topic()).log.first_position)
        again = world.peer()
        await again.consumer(kind=kind, permits=1000, consumer_name="c")
        await world.until(lambda: len(again.messages) == 2, "batches again")
        assert unacked(subscription) == [20]
        again.session.lost()
        third = world.peer()
        await third.consumer(kind=kind, permits=1000, consumer_name="c")
        await world.until(lambda: len(third.messages) == 2, "batches once more")
        third.ack(1, *(message.position for message in third.messages))
        assert unacked(subscription) == [0]

    in_world(story)


def test_times_of_what_happened_last() -> None:
    async def story(world: World) -> None:
        start_ms = world.clock.now_ms()
        peer = world.peer()
        await peer.producer()
        await peer.consumer(kind="Shared", permits=1)
        world.clock.advance(1_000)
        peer.send(batch(1, 0), batch(1, 1))
        await world.until(lambda: len(peer.messages) == 1, "a message")
        subscription = (await world.topic()).subscriptions["s"]
        (consumer,) = subscription.consumers
        tally = subscription.tally
        first_ms = world.clock.now_ms()
        assert (consumer.first_flow_ms, consumer.flow_ms, tally.flow_ms) == (start_ms,) * 3
        assert (consumer.first_sent_ms, consumer.sent_ms, tally.sent_ms) == (first_ms,) * 3
        assert (consumer.acked_ms, tally.acked_ms, tally.advanced_ms, tally.expired_ms) == (0, 0, 0, 0)
        world.clock.advance(1_000)
        second_ms = world.clock.now_ms()
        peer.send(command(Type.FLOW, consumer_id=1, messagePermits=5))
        await world.until(lambda: len(peer.messages) == 2, "the other one")
        peer.ack(1, peer.messages[1].position)
        assert (consumer.first_flow_ms, consumer.flow_ms) == (start_ms, second_ms)
        assert (consumer.first_sent_ms, consumer.sent_ms) == (first_ms, second_ms)
        assert (consumer.acked_ms, tally.acked_ms, tally.advanced_ms) == (second_ms, second_ms, 0)
        world.clock.advance(1_000)
        await subscription.expire_to(peer.messages[1].position)
        assert tally.advanced_ms == tally.expired_ms == world.clock.now_ms()
        assert (tally.expired, tally.expired_last) == (1, 1)

    in_world(story)
