"""A client that was away comes back after its transaction timed out and a newer one took over."""

from __future__ import annotations

from magnetar.wire import pulsar_pb2 as pb
from support.seen import Type
from support.sessions import World, in_world, send
from support.transactions import ON, TxnPeer, bodies

IN = "persistent://public/default/in"


async def worker(world: World, number: int) -> TxnPeer:
    """A producer that fences those before it, and a consumer of the input that the workers share."""
    peer = world.peer()
    await peer.producer(
        request_id=10 * number, producer_access_mode=pb.ProducerAccessMode.ExclusiveWithFencing
    )
    await peer.consumer(topic=IN, request_id=10 * number + 1, permits=10, kind="Shared")
    return TxnPeer(peer)


def test_a_client_that_was_away_is_fenced() -> None:
    async def story(world: World) -> None:
        source = world.peer()
        await source.producer(9, topic=IN, request_id=90)
        old = await worker(world, 1)
        source.send(send(9, 0, b"input"))
        await world.until(lambda: len(old.peer.messages) == 1, "the input")
        at = old.peer.messages[0].position
        stale = await old.begin(ttl_ms=5_000)
        await old.add_partitions(stale)
        await old.add_subscription(stale, topic=IN)
        await old.publish(stale, 0, b"output of the old one")
        assert not (await old.ack(stale, at)).HasField("error")
        # It hangs; its connection stays, so its consumer does too.
        world.clock.advance(5_000)
        world.broker.alarms.ring()
        await world.until(lambda: len(old.peer.messages) == 2, "the input again")
        new = await worker(world, 2)
        await world.until(lambda: old.peer.commands(Type.CLOSE_PRODUCER), "the old producer is fenced")
        fresh = await new.begin()
        await new.add_partitions(fresh)
        await new.publish(fresh, 0, b"output of the new one")
        # It goes on with what it had in mind.
        old.send(stale, 1, b"late output")
        assert (await old.ack(stale, at)).HasField("error")
        assert (await old.add_partitions(stale)).error == pb.InvalidTxnStatus
        assert (await old.end(stale, commit=True)).error == pb.InvalidTxnStatus
        # Not even with the id of the transaction that took over: its producer is gone.
        old.send(fresh, 2, b"in the wrong transaction")
        await world.settle()
        await new.commit(fresh)
        reader = world.peer()
        await reader.consumer(5, request_id=50, subscription="later", permits=10)
        await world.until(lambda: bodies(reader, 5), "the output")
        await world.settle()
        assert bodies(reader, 5) == [b"output of the new one"]
        # The input is whole, for the code that takes it now.
        assert (await world.topic(IN)).subscriptions["s"].backlog_entries == 1

    in_world(story, ON)


def test_its_messages_are_refused_also_where_its_producer_is_there_still() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        client = TxnPeer(peer)
        stale = await client.begin(ttl_ms=5_000)
        await client.add_partitions(stale)
        await client.publish(stale, 0, b"in time")
        world.clock.advance(5_000)
        world.broker.alarms.ring()
        await world.settle()
        client.send(stale, 1, b"late")
        await world.until(lambda: peer.commands(Type.SEND_ERROR), "refusal")
        assert peer.commands(Type.SEND_ERROR)[0].error == pb.NotAllowedError
        peer.send(send(1, 2, b"plain"))
        await peer.consumer(request_id=3, permits=10)
        await world.until(lambda: bodies(peer) == [b"plain"], "the plain message alone")

    in_world(story, ON)
