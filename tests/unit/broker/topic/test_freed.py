"""What clients and topics leave behind is freed when it ends, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.topic.topic import Topic
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, Type, World, in_world, send


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    """Only counting references frees."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _reader(peer: Peer) -> None:
    await peer.consumer(
        subscription="reader",
        permits=100,
        durable=False,
        start_message_id=pb.MessageIdData(ledgerId=0, entryId=0),
    )


async def _published(world: World) -> Peer:
    return await _published_to(world, TOPIC)


async def _published_to(world: World, topic: str) -> Peer:
    peer = world.peer()
    await peer.producer(topic=topic)
    peer.send(*(send(1, number, b"x") for number in range(5)))
    await world.until(lambda: len(peer.receipts) == 5, "receipts")
    return peer


def _alive(refs: dict[str, weakref.ref[object]]) -> list[str]:
    return [name for name, ref in refs.items() if ref() is not None]


async def _idle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.parametrize("closed", [True, False])
def test_a_reader_leaves_nothing(closed: bool) -> None:
    async def story(world: World) -> None:
        keeper = await _published(world)
        peer = world.peer()
        await _reader(peer)
        consumer = peer.session.consumers[1]
        await world.until(lambda: peer.messages, "messages")
        refs: dict[str, weakref.ref[object]] = {
            "consumer": weakref.ref(consumer),
            "subscription": weakref.ref(consumer.subscription),
        }
        del consumer
        if closed:
            await peer.ask(Type.CLOSE_CONSUMER, consumer_id=1, request_id=3)
        peer.session.lost()
        await _idle()
        assert _alive(refs) == []
        assert keeper.closed is None

    in_world(story)


def test_a_session_leaves_nothing() -> None:
    async def story(world: World) -> None:
        await _published(world)
        peer = world.peer()
        await peer.producer(topic="persistent://public/default/other")
        await _reader(peer)
        session = weakref.ref(peer.session)
        peer.session.lost()
        await _idle()
        del peer
        await _idle()
        assert session() is None

    in_world(story)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_topic_leaves_nothing(domain: str, deleted: bool) -> None:
    """Parts of a topic, its log and its cursors knew the whole: each unloading left 150 objects."""

    async def story(world: World) -> None:
        name = TopicName.parse(f"{domain}://public/default/t")
        peer = await _published_to(world, str(name))
        await peer.consumer(topic=str(name), permits=5)
        topic = await world.broker.any_topic(name)
        refs: dict[str, weakref.ref[object]] = {"topic": weakref.ref(topic)}
        if isinstance(topic, Topic):
            await world.until(lambda: len(peer.messages) == 5, "messages")
            peer.ack(1, *(message.position for message in peer.messages))
            refs["log"] = weakref.ref(topic.log)
            refs["subscription"] = weakref.ref(topic.subscriptions["s"])
        del topic
        peer.session.lost()
        if deleted:
            await world.broker.delete_topic(name, force=True)
        else:
            await world.broker.unload(name)
        await _idle()
        assert _alive(refs) == []

    in_world(story)
