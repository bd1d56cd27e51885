"""A topic: what its life cycle leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.ids import EARLIEST
from magnetar.broker.errors import (
    PreconditionFailedError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Type, World, in_world, send


def test_what_is_in_use_is_not_deleted() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        topic = await world.topic()
        with pytest.raises(PreconditionFailedError):
            await world.broker.delete_topic(topic.name)
        await world.broker.delete_topic(topic.name, force=True)
        await world.until(lambda: peer.commands(Type.CLOSE_PRODUCER), "CLOSE_PRODUCER")
        with pytest.raises(TopicNotFoundError):
            await world.broker.topic(topic.name, create=False)

    in_world(story)


def test_a_subscription_in_use_is_deleted_by_force_only() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        topic = await world.topic()
        with pytest.raises(PreconditionFailedError):
            await topic.delete_subscription("s")
        await topic.delete_subscription("s", force=True)
        await world.until(lambda: peer.commands(Type.CLOSE_CONSUMER), "CLOSE_CONSUMER")
        with pytest.raises(SubscriptionNotFoundError):
            await topic.delete_subscription("s")

    in_world(story)


@pytest.mark.parametrize("fails", [False, True])
def test_a_reader_takes_no_name_whose_subscription_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """After a deletion that failed, the durable subscription was not listed any more."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        topic = await world.topic()
        durable = topic.subscriptions["s"]
        deletes, go_on = asyncio.Event(), asyncio.Event()
        delete = topic.log.delete_cursor

        async def slowly(name: str) -> None:
            deletes.set()
            await go_on.wait()
            if fails:
                raise ServiceNotReadyError("the store cannot be reached")
            await delete(name)

        monkeypatch.setattr(topic.log, "delete_cursor", slowly)
        dropping = asyncio.ensure_future(topic.drop_subscription(durable))
        await deletes.wait()
        reading = asyncio.ensure_future(topic.reader("s", ReaderStart(EARLIEST, None)))
        await world.settle()
        assert "s" not in topic.subscriptions
        go_on.set()
        await asyncio.gather(dropping, return_exceptions=True)
        assert (await reading is durable) is fails
        assert topic.subscriptions["s"].durable is fails

    in_world(story)


def test_a_terminated_topic_takes_no_producer() -> None:
    async def story(world: World) -> None:
        topic = await world.topic()
        await topic.log.terminate()
        answer = await world.peer().producer()
        assert answer.error == pb.TopicTerminatedError

    in_world(story)


def test_a_subscription_is_not_made_on_a_topic_that_is_unloaded_meanwhile() -> None:
    # The consumer attached to an object that was not fed any more.
    async def story(world: World) -> None:
        topic = await world.topic()
        open_cursor, gate = topic.log.open_cursor, asyncio.Event()

        async def slowly(name: str, **how: Any) -> Cursor:
            cursor = await open_cursor(name, **how)
            await gate.wait()
            return cursor

        topic.log.open_cursor = slowly  # type: ignore[method-assign]  # a slow metadata store
        subscribing = asyncio.ensure_future(
            topic.subscription("s", initial_earliest=True, start=None, properties=None)
        )
        await world.settle()
        await world.broker.unload(topic.name)
        gate.set()
        with pytest.raises(ServiceNotReadyError):
            await subscribing
        with pytest.raises(ServiceNotReadyError):
            await topic.subscription("t", initial_earliest=True, start=None, properties=None)
        with pytest.raises(ServiceNotReadyError):
            await topic.reader("r", ReaderStart(EARLIEST))

    in_world(story)


def test_readers_leave_nothing_in_a_topic() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer(durable=False, subscription="reader")
        topic = await world.topic()
        assert list(topic.subscriptions) == ["reader"]
        peer.session.lost()
        assert not topic.subscriptions

    in_world(story)


def test_subscriptions_are_there_again_after_an_unload() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        peer.send(send(1, 0, b"a"), send(1, 1, b"b"))
        await peer.consumer(permits=10)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        peer.ack(1, peer.messages[0].position)
        before = await world.topic()
        await world.broker.unload(before.name)
        after = await world.topic()
        assert after is not before
        assert after.subscriptions["s"].cursor.backlog_entries == 1
        peer.seen.clear()
        await peer.consumer(request_id=20, permits=10)
        await world.until(lambda: peer.messages, "delivery")
        assert peer.bodies == [b"b"]

    in_world(story)
