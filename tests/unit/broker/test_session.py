"""One client's session: who is answered, in which order, and what is left behind."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from support.sessions import CONNECT, TOPIC, Peer, Type, World, command, in_world, send


async def open_and_publish(world: World, count: int = 5) -> Peer:
    peer = world.peer()
    await peer.producer()
    peer.send(*(send(1, i, b"%d" % i) for i in range(count)))
    await world.until(lambda: len(peer.receipts) == count, "receipts")
    return peer


def test_the_first_command_must_be_connect() -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        peer.send(command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1))
        assert peer.closed is not None
        assert "CONNECT" in peer.closed
        other = world.peer(connected=False)
        other.send(CONNECT)
        await world.until(lambda: other.commands(Type.CONNECTED), "CONNECTED")
        assert other.commands(Type.CONNECTED)[0].max_message_size == 5 << 20

    in_world(story)


def test_a_producer_is_answered_once_per_request() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        first = await peer.producer(request_id=1)
        again = await peer.producer(request_id=2)
        assert again.producer_name == first.producer_name
        assert list((await world.topic()).producers) == [first.producer_name]

    in_world(story)


def test_a_producer_id_serves_one_topic_at_a_time() -> None:
    # The second PRODUCER took the id over, and the first stayed attached to its topic for ever.
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(request_id=1)
        refused = await peer.producer(request_id=2, topic=TOPIC + "2")
        assert refused.error == pb.ServiceNotReady
        peer.session.lost()
        assert not (await world.topic()).producers

    in_world(story)


@pytest.mark.parametrize("kind", [Type.PRODUCER, Type.SUBSCRIBE])
def test_an_id_that_is_asked_for_twice_at_once_is_attached_once(kind: int) -> None:
    # Both attempts waited for the topic, both attached, and only one could ever be closed.
    async def story(world: World) -> None:
        peer = world.peer()
        fields = (
            {"producer_id": 1}
            if kind == Type.PRODUCER
            else {"consumer_id": 1, "subscription": "s", "subType": pb.CommandSubscribe.SubType.Shared}
        )
        peer.send(
            command(kind, topic=TOPIC, request_id=1, **fields),
            command(kind, topic=TOPIC, request_id=2, **fields),
        )
        assert not hasattr(await peer.answer(1), "error")
        assert (await peer.answer(2)).error == pb.ServiceNotReady
        topic = await world.topic()
        assert len(topic.producers) + sum(len(s.consumers) for s in topic.subscriptions.values()) == 1
        peer.session.lost()
        assert not topic.producers
        assert not any(subscription.consumers for subscription in topic.subscriptions.values())

    in_world(story)


def test_what_is_closed_while_it_opens_is_not_attached() -> None:
    # A client whose request timed out closes the id; a consumer that attached after that held messages
    # which nobody acknowledged.
    async def story(world: World) -> None:
        peer = world.peer()
        peer.send(
            command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1),
            command(Type.CLOSE_PRODUCER, producer_id=1, request_id=2),
            command(
                Type.SUBSCRIBE,
                topic=TOPIC,
                consumer_id=1,
                request_id=3,
                subscription="s",
                subType=pb.CommandSubscribe.SubType.Exclusive,
            ),
            command(Type.CLOSE_CONSUMER, consumer_id=1, request_id=4),
        )
        assert (await peer.answer(1)).error == pb.ServiceNotReady
        assert (await peer.answer(3)).error == pb.ServiceNotReady
        assert not hasattr(await peer.answer(2), "error")
        assert not hasattr(await peer.answer(4), "error")
        topic = await world.topic()
        assert not topic.producers
        assert not topic.subscriptions["s"].consumers

    in_world(story)


def test_an_id_may_be_closed_and_opened_anew_at_once() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        peer.send(
            command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1),
            command(Type.CLOSE_PRODUCER, producer_id=1, request_id=2),
            command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=3),
        )
        assert (await peer.answer(3)).producer_name
        assert (await peer.answer(1)).error == pb.ServiceNotReady
        assert len((await world.topic()).producers) == 1

    in_world(story)


def test_receipts_come_in_the_order_of_the_sends() -> None:
    async def story(world: World) -> None:
        peer = await open_and_publish(world, 20)
        assert [sequence_id for _, sequence_id, _ in peer.receipts] == list(range(20))
        positions = [position for _, _, position in peer.receipts]
        assert positions == sorted(set(positions))

    in_world(story)


def test_nothing_is_acknowledged_before_it_is_durable() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        world.ledgers.auto_sync = False
        peer.send(*(send(1, i) for i in range(4)))
        await world.settle()
        assert peer.receipts == []
        world.ledgers.writer(world.ledgers.tagged(None)[-1]).sync(2)
        await world.settle()
        world.ledgers.sync()
        await world.until(lambda: len(peer.receipts) == 4, "receipts")
        assert [sequence_id for _, sequence_id, _ in peer.receipts] == [0, 1, 2, 3]

    in_world(story)


def test_a_send_with_a_wrong_checksum_is_refused_alone() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        damaged = bytearray(send(1, 1, b"damaged"))
        damaged[-1] ^= 1
        peer.send(send(1, 0), bytes(damaged), send(1, 2))
        await world.until(lambda: len(peer.receipts) == 2, "receipts")
        (error,) = peer.commands(Type.SEND_ERROR)
        assert (error.sequence_id, error.error) == (1, pb.ChecksumError)
        assert [sequence_id for _, sequence_id, _ in peer.receipts] == [0, 2]
        assert world.broker.in_flight_bytes == 0

    in_world(story)


def test_a_late_send_to_a_closed_producer_is_dropped() -> None:
    async def story(world: World) -> None:
        peer = await open_and_publish(world, 1)
        peer.send(command(Type.CLOSE_PRODUCER, producer_id=1, request_id=9), send(1, 1))
        await peer.answer(9)
        await world.settle()
        assert peer.closed is None
        assert len(peer.receipts) == 1

    in_world(story)


def test_a_send_to_an_unknown_producer_closes_the_connection() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        peer.send(send(7, 0), command(Type.PING))
        assert peer.closed == "SEND for producer 7, which this connection has not opened"
        await world.settle()
        assert not peer.commands(Type.PONG)

    in_world(story)


def test_exclusive_takes_one_consumer_and_types_do_not_mix() -> None:
    async def story(world: World) -> None:
        first, second = world.peer(), world.peer()
        assert not hasattr(await first.consumer(), "error")
        assert (await second.consumer()).error == pb.ConsumerBusy
        assert (await second.consumer(kind="Shared", request_id=3)).error == pb.ConsumerBusy
        first.session.lost()
        assert not hasattr(await second.consumer(kind="Shared", request_id=4), "error")

    in_world(story)


def test_failover_tells_who_is_active_and_hands_over() -> None:
    async def story(world: World) -> None:
        await open_and_publish(world)
        first, second = world.peer(), world.peer()
        await first.consumer(kind="Failover", consumer_name="a", permits=100)
        await second.consumer(kind="Failover", consumer_name="b", permits=100)
        await world.until(lambda: len(first.messages) == 5, "messages")
        assert [change.is_active for change in first.commands(Type.ACTIVE_CONSUMER_CHANGE)] == [True]
        assert [change.is_active for change in second.commands(Type.ACTIVE_CONSUMER_CHANGE)] == [False]
        first.ack(1, first.messages[0].position)
        first.session.lost()
        await world.until(lambda: len(second.messages) == 4, "hand-over")
        assert second.bodies == [b"1", b"2", b"3", b"4"]
        assert [change.is_active for change in second.commands(Type.ACTIVE_CONSUMER_CHANGE)] == [False, True]

    in_world(story)


def test_shared_consumers_divide_and_inherit() -> None:
    async def story(world: World) -> None:
        await open_and_publish(world, 6)
        first, second = world.peer(), world.peer()
        await first.consumer(kind="Shared")
        await second.consumer(kind="Shared")
        first.send(encode_flow(1, 2))
        second.send(encode_flow(1, 100))
        await world.until(lambda: len(first.messages) + len(second.messages) == 6, "messages")
        assert len(first.messages) == 2
        first.session.lost()
        await world.until(lambda: len(second.messages) == 6, "what the other one held")
        assert sorted(second.bodies) == [b"%d" % i for i in range(6)]

    in_world(story)


def test_seek_takes_consumers_off_and_starts_there() -> None:
    async def story(world: World) -> None:
        publisher = await open_and_publish(world)
        peer = world.peer()
        await peer.consumer(permits=100)
        await world.until(lambda: len(peer.messages) == 5, "messages")
        target = publisher.receipts[3][2]
        await peer.ask(
            Type.SEEK,
            consumer_id=1,
            request_id=5,
            message_id=pb.MessageIdData(ledgerId=target.ledger_id, entryId=target.entry_id),
        )
        assert [closed.consumer_id for closed in peer.commands(Type.CLOSE_CONSUMER)] == [1]
        peer.seen.clear()
        await peer.consumer(request_id=6, permits=100)
        await world.until(lambda: len(peer.messages) == 2, "messages after the seek")
        assert peer.bodies == [b"3", b"4"]

    in_world(story)


def test_a_reader_that_leaves_after_a_seek_leaves_nothing_behind() -> None:
    # The seek takes the consumer off; when its client never came back the subscription stayed for ever.
    async def story(world: World) -> None:
        await open_and_publish(world)
        topic = await world.topic()
        peer = world.peer()
        await peer.consumer(durable=False)
        await peer.ask(Type.SEEK, consumer_id=1, request_id=5, message_publish_time=0)
        assert list(topic.subscriptions) == ["s"]
        peer.session.lost()
        assert not topic.subscriptions

    in_world(story)


def test_the_failure_of_a_topic_is_told_and_the_topic_can_be_loaded_again() -> None:
    async def story(world: World) -> None:
        from fakes.ledgers import write_error

        peer = await open_and_publish(world, 3)
        await peer.consumer(permits=100)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        world.ledgers.auto_sync = False
        peer.send(send(1, 3), send(1, 4))
        failed = await world.topic()
        world.ledgers.writer(world.ledgers.tagged(None)[-1]).fail(write_error())
        await world.until(lambda: len(peer.commands(Type.SEND_ERROR)) == 2, "errors")
        assert [error.error for error in peer.commands(Type.SEND_ERROR)] == [pb.PersistenceError] * 2
        assert [each.producer_id for each in peer.commands(Type.CLOSE_PRODUCER)] == [1]
        assert [each.consumer_id for each in peer.commands(Type.CLOSE_CONSUMER)] == [1]
        assert world.broker.in_flight_bytes == 0
        assert len(peer.receipts) == 3
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        peer.send(send(1, 5))  # a late one, which the client had under way
        assert peer.closed is None
        await peer.producer(request_id=10)
        assert await world.topic() is not failed
        peer.send(send(1, 3, b"again"))
        await peer.consumer(request_id=11, permits=100)
        await world.until(lambda: b"again" in peer.bodies, "the message sent again")

    in_world(story)


def test_pings_are_answered() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        peer.send(command(Type.PING), command(Type.PING))
        await world.until(lambda: len(peer.commands(Type.PONG)) == 2, "PONG")

    in_world(story)


def test_a_silent_peer_is_pinged_then_dropped() -> None:
    async def story(world: World) -> None:
        peer, alive, mute = world.peer(), world.peer(), world.peer(connected=False)
        for each in (peer, alive, mute):
            each.session.keep_alive()
            each.session.keep_alive()
        await asyncio.sleep(0)
        assert len(peer.commands(Type.PING)) == len(alive.commands(Type.PING)) == 1
        assert mute.aborted, "no CONNECT came"
        alive.send(command(Type.PONG))
        for each in (peer, alive):
            each.session.keep_alive()
        assert peer.aborted
        assert not alive.aborted

    in_world(story)
