"""Access modes of producers, as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.access.producer_access import EPOCH_PROPERTY
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, Type, World, command, in_world, send

Mode = pb.ProducerAccessMode


async def open_producer(peer: Peer, request_id: int, mode: Any, **more: Any) -> Any:
    """Asks for a producer whose id is the request's; the first answer."""
    return await peer.producer(request_id, request_id=request_id, producer_access_mode=mode, **more)


def answers(peer: Peer, request_id: int) -> list[tuple[bool, int | None]]:
    """(ready, epoch) of every PRODUCER_SUCCESS to this request."""
    return [
        (body.producer_ready, body.topic_epoch if body.HasField("topic_epoch") else None)
        for body in peer.commands(Type.PRODUCER_SUCCESS)
        if body.request_id == request_id
    ]


async def refusal(world: World, peer: Peer, request_id: int) -> Any:
    """The error that answers this request."""

    def found() -> Any:
        return next((e.error for e in peer.commands(Type.ERROR) if e.request_id == request_id), None)

    return await world.until(found, f"refusal of {request_id}")


def test_shared_producers_know_no_epoch() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Shared)
        await open_producer(peer, 2, Mode.Shared)
        assert answers(peer, 1) == answers(peer, 2) == [(True, None)]

    in_world(story)


@pytest.mark.parametrize("first", [Mode.Shared, Mode.Exclusive])
def test_an_exclusive_producer_is_refused_beside_others(first: Any) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, first)
        assert (await open_producer(peer, 2, Mode.Exclusive)).error == pb.ProducerFenced

    in_world(story)


def test_a_shared_producer_is_busy_beside_an_exclusive_one() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Exclusive)
        assert answers(peer, 1) == [(True, 0)]
        assert (await open_producer(peer, 2, Mode.Shared)).error == pb.ProducerBusy

    in_world(story)


def test_who_waits_gets_its_turn_in_order_with_a_new_epoch() -> None:
    async def story(world: World) -> None:
        holder, other = world.peer(), world.peer()
        await open_producer(holder, 1, Mode.Exclusive)
        await open_producer(other, 2, Mode.WaitForExclusive)
        await open_producer(other, 3, Mode.WaitForExclusive)
        assert answers(other, 2) == answers(other, 3) == [(False, None)]
        holder.send(command(Type.CLOSE_PRODUCER, producer_id=1, request_id=9))
        await world.until(lambda: len(answers(other, 2)) == 2, "the turn of 2")
        assert answers(other, 2)[1] == (True, 1)
        other.send(send(2, 0))
        await world.until(lambda: other.receipts, "receipt")
        assert len(answers(other, 3)) == 1
        other.send(command(Type.CLOSE_PRODUCER, producer_id=2, request_id=10))
        await world.until(lambda: len(answers(other, 3)) == 2, "the turn of 3")
        assert answers(other, 3)[1] == (True, 2)

    in_world(story)


def test_a_waiting_producer_that_leaves_loses_its_place() -> None:
    async def story(world: World) -> None:
        holder, first, second = world.peer(), world.peer(), world.peer()
        await open_producer(holder, 1, Mode.Exclusive)
        await open_producer(first, 2, Mode.WaitForExclusive)
        await open_producer(second, 3, Mode.WaitForExclusive)
        first.session.lost()
        holder.session.lost()
        await world.until(lambda: len(answers(second, 3)) == 2, "the turn of 3")

    in_world(story)


def test_a_send_before_the_turn_is_refused() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Exclusive)
        await open_producer(peer, 2, Mode.WaitForExclusive)
        peer.send(send(2, 0))
        await world.settle()
        assert [error.producer_id for error in peer.commands(Type.SEND_ERROR)] == [2]
        assert world.broker.intake.bytes_used == 0

    in_world(story)


def test_fencing_sends_the_holder_and_the_line_away() -> None:
    async def story(world: World) -> None:
        old, new = world.peer(), world.peer()
        await open_producer(old, 1, Mode.Exclusive)
        await open_producer(old, 2, Mode.WaitForExclusive)
        await open_producer(new, 3, Mode.ExclusiveWithFencing)
        assert answers(new, 3) == [(True, 1)]
        assert [each.producer_id for each in old.commands(Type.CLOSE_PRODUCER)] == [1]
        assert await refusal(world, old, 2) == pb.ProducerFenced
        old.send(send(1, 0))
        await world.settle()
        assert not old.receipts
        assert old.closed is None
        # The client of the old one comes again and shows its epoch.
        again = await open_producer(old, 4, Mode.Exclusive, topic_epoch=0)
        assert again.error == pb.ProducerFenced
        again = await open_producer(old, 5, Mode.ExclusiveWithFencing, topic_epoch=0)
        assert again.error == pb.ProducerFenced

    in_world(story)


def test_the_holder_comes_back_before_its_dead_connection_is_noticed() -> None:
    async def story(world: World) -> None:
        dead, alive = world.peer(), world.peer()
        await open_producer(dead, 1, Mode.Exclusive, producer_name="p")
        await open_producer(alive, 2, Mode.Exclusive, producer_name="p", topic_epoch=0, epoch=1)
        assert answers(alive, 2) == [(True, 0)]
        dead.session.lost()
        topic = await world.topic()
        assert [each.connection for each in topic.producers.values()] == [alive.session]

    in_world(story)


def test_the_epoch_survives_an_unload() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Exclusive)
        await open_producer(peer, 2, Mode.ExclusiveWithFencing)
        topic = await world.topic()
        assert topic.log.properties[EPOCH_PROPERTY] == "1"
        await world.broker.unload(topic.name)
        # A former holder must stay outside, also when the broker has forgotten everything.
        assert (await open_producer(peer, 3, Mode.Exclusive, topic_epoch=0)).error == pb.ProducerFenced
        await open_producer(peer, 4, Mode.Exclusive, topic_epoch=1)
        assert answers(peer, 4) == [(True, 1)]

    in_world(story)


def test_an_unload_tells_who_waits() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Exclusive)
        await open_producer(peer, 2, Mode.WaitForExclusive)
        await world.broker.unload((await world.topic()).name)
        assert await refusal(world, peer, 2) == pb.ServiceNotReady
        assert [each.producer_id for each in peer.commands(Type.CLOSE_PRODUCER)] == [1]

    in_world(story)


def test_an_epoch_that_cannot_be_stored_is_not_told() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        topic = await world.topic()

        async def fails(change: object) -> None:
            raise MetadataError("no store")

        stored, topic.log.update_properties = topic.log.update_properties, fails  # type: ignore[method-assign]  # the store's fault
        assert (await open_producer(peer, 1, Mode.Exclusive)).error == pb.MetadataError
        topic.log.update_properties = stored  # type: ignore[method-assign]  # undoes the fault
        await open_producer(peer, 2, Mode.Exclusive)
        assert answers(peer, 2) == [(True, 0)]

    in_world(story)


def test_a_terminated_topic_refuses_who_waits() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await open_producer(peer, 1, Mode.Exclusive)
        await open_producer(peer, 2, Mode.WaitForExclusive)
        await (await world.topic(TOPIC)).log.terminate()
        peer.send(command(Type.CLOSE_PRODUCER, producer_id=1, request_id=9))
        assert await refusal(world, peer, 2) == pb.TopicTerminatedError

    in_world(story)


def test_a_producer_begins_the_subscription_that_must_miss_nothing_of_it() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(1, request_id=1, initial_subscription_name="later")
        await peer.producer(2, request_id=2, initial_subscription_name="later")
        peer.send(send(1, 0, b"first"))
        await peer.consumer(3, request_id=3, subscription="later", permits=10)
        await world.until(lambda: peer.bodies == [b"first"], "what was sent before the consumer came")

    in_world(story)
