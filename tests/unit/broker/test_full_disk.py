"""A topic on a full disk: producers wait, consumers go on, and it opens again once there is room."""

from __future__ import annotations

from fakes.ledgers import write_error
from magnetar.base.errors import DiskFullError, disk_full
from magnetar.broker.topic.disk_mark import RETRY_MS
from magnetar.broker.topic.topic import Topic
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from support.sessions import Peer, Type, World, in_world, send

REMEDY = "no space in data to write entries: free space there, or use a larger disk"


async def fill(world: World, peer: Peer) -> Topic:
    """Publishes what finds no room."""
    topic = await world.topic()
    world.ledgers.auto_sync = False
    peer.send(send(1, 3), send(1, 4))
    error = write_error()
    error.__cause__ = DiskFullError(REMEDY)
    world.ledgers.room = False
    world.ledgers.writer(world.ledgers.tagged(None)[-1]).fail(error)
    await world.until(lambda: peer.commands(Type.CLOSE_PRODUCER), "CLOSE_PRODUCER")
    world.ledgers.auto_sync = True
    world.ledgers.sync()
    return topic


async def look(world: World) -> None:
    world.clock.advance(RETRY_MS)
    world.broker.alarms.ring()
    await world.settle()


def test_a_full_disk_is_found_behind_other_errors() -> None:
    error = write_error()
    assert disk_full(error) is None
    error.__cause__ = DiskFullError(REMEDY)
    assert disk_full(error) is error.__cause__


def test_consumers_stay_and_producers_wait_for_room() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(permits=1)
        peer.send(*(send(1, i, b"%d" % i) for i in range(3)))
        await world.until(lambda: len(peer.receipts) == 3, "receipts")
        topic = await fill(world, peer)
        assert not peer.commands(Type.SEND_ERROR)  # clients would close their consumers' connection
        assert world.broker.intake.bytes_used == 0
        peer.send(send(1, 5))  # a late one, which the client had under way
        for request_id in range(10, 13):
            refused = await peer.producer(request_id=request_id)
            assert refused.error == pb.ServiceNotReady
            assert REMEDY in refused.message
            await look(world)
        assert await world.topic() is topic

        # Draining goes on, also for a consumer that comes only now.
        peer.send(encode_flow(1, 10))
        await world.until(lambda: len(peer.messages) == 3, "messages")
        other = world.peer()
        await other.consumer(subscription="late", permits=10)
        await world.until(lambda: len(other.messages) == 3, "messages for another one")
        peer.ack(1, *(message.position for message in peer.messages[:2]))
        await world.settle()
        assert not peer.commands(Type.CLOSE_CONSUMER)
        assert len(world.ledgers.tagged(None)) == 1

        world.ledgers.room = True
        await look(world)
        assert len(peer.commands(Type.CLOSE_CONSUMER)) == 1
        assert topic.log.state.value == "closed"
        assert (await peer.producer(request_id=20)).producer_name
        peer.send(send(1, 3, b"3"), send(1, 4, b"4"))
        await peer.consumer(request_id=21, permits=10)
        await world.until(lambda: len(peer.messages) == 6, "what was not acknowledged, and the rest")
        assert peer.bodies[3:] == [b"2", b"3", b"4"]

    in_world(story)


def test_a_topic_that_is_unloaded_meanwhile_looks_for_room_no_more() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        topic = await fill(world, peer)
        assert len(world.broker.alarms) == 1
        await world.broker.unload(topic.name)
        assert len(world.broker.alarms) == 0
        assert (await peer.producer(request_id=9)).producer_name

    in_world(story)
