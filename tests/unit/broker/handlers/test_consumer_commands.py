"""What the broker tells a client about its consumers: statistics, and the end of a topic."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Peer, Type, World, command, in_world, send


async def java_peer(world: World, version: str = "Pulsar-Java-v4.0.1", protocol: int = 21) -> Peer:
    peer = world.peer(connected=False)
    peer.send(command(Type.CONNECT, client_version=version, protocol_version=protocol))
    await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
    return peer


def ends(peer: Peer) -> list[int]:
    return [end.consumer_id for end in peer.commands(Type.REACHED_END_OF_TOPIC)]


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_statistics_of_a_consumer(kind: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(kind=kind, permits=10, consumer_name="me")
        peer.send(*(send(1, i) for i in range(4)))
        await world.until(lambda: len(peer.messages) == 4, "messages")
        peer.ack(1, peer.messages[0].position)
        world.clock.advance(2_000)
        stats = await peer.ask(Type.CONSUMER_STATS, request_id=5, consumer_id=1)
        assert not stats.HasField("error_code")
        assert (stats.consumerName, stats.type, stats.address) == ("me", kind, "peer")
        assert (stats.availablePermits, stats.unackedMessages, stats.msgBacklog) == (6, 3, 3)
        assert (stats.msgRateOut, stats.messageAckRate, stats.msgRateRedeliver) == (2.0, 0.5, 0.0)
        assert stats.msgThroughputOut > 0
        assert not stats.blockedConsumerOnUnackedMsgs
        assert stats.connectedSince == "2023-11-14T22:13:20.000+00:00"

    in_world(story)


def test_statistics_of_no_consumer() -> None:
    async def story(world: World) -> None:
        stats = await world.peer().ask(Type.CONSUMER_STATS, request_id=5, consumer_id=1)
        assert stats.error_code == pb.ConsumerNotFound

    in_world(story)


def test_the_end_is_told_once_when_everything_is_acknowledged() -> None:
    async def story(world: World) -> None:
        peer = await java_peer(world)
        await peer.producer()
        await peer.consumer(kind="Shared", permits=10)
        peer.send(send(1, 0))
        await world.until(lambda: peer.messages, "message")
        topic = await world.topic()
        assert await topic.terminate() == peer.messages[0].position
        await world.settle()
        assert not ends(peer)
        assert [each.producer_id for each in peer.commands(Type.CLOSE_PRODUCER)] == [1]
        again = await peer.producer(2, request_id=6)
        assert again.error == pb.TopicTerminatedError
        peer.ack(1, peer.messages[0].position)
        await world.until(lambda: ends(peer), "end of topic")
        peer.ack(1, peer.messages[0].position)
        await world.settle()
        assert ends(peer) == [1]

    in_world(story)


def test_a_consumer_that_comes_after_the_end_is_told() -> None:
    async def story(world: World) -> None:
        peer = await java_peer(world)
        topic = await world.topic()
        await topic.terminate()
        await peer.consumer(permits=10)
        await world.until(lambda: ends(peer), "end of topic")
        kinds = [seen.type for seen in peer.seen if isinstance(seen, pb.BaseCommand)]
        assert kinds.index(Type.SUCCESS) < kinds.index(Type.REACHED_END_OF_TOPIC)

    in_world(story)


@pytest.mark.parametrize(
    ("version", "protocol"), [("Pulsar-CPP-v3.7.0", 21), ("2.8.1", 19), ("Pulsar-Java-v4.0.1", 8), ("", 21)]
)
def test_clients_that_would_close_the_connection_are_not_told(version: str, protocol: int) -> None:
    async def story(world: World) -> None:
        peer = await java_peer(world, version, protocol)
        await (await world.topic()).terminate()
        await peer.consumer(permits=10)
        await world.settle()
        assert not ends(peer)

    in_world(story)


def test_who_sends_while_a_topic_ends_is_sent_away_and_told_when_it_comes_back() -> None:
    """The Go client forgets a producer, and what it waits for, when a send is answered by this error."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        topic = await world.topic()
        world.ledgers.auto_sync = False
        peer.send(send(1, 0))
        ending = asyncio.create_task(topic.terminate())
        await world.settle()
        peer.send(send(1, 1))
        await world.settle()
        assert not peer.receipts
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        await ending
        await world.until(lambda: peer.commands(Type.CLOSE_PRODUCER), "its dismissal")
        assert [sequence_id for _, sequence_id, _ in peer.receipts] == [0]
        assert not peer.commands(Type.SEND_ERROR)
        assert (await peer.producer(request_id=9)).error == pb.TopicTerminatedError

    in_world(story)


def redeliver(peer: Peer, *positions: Position) -> None:
    ids = [pb.MessageIdData(ledgerId=each.ledger_id, entryId=each.entry_id) for each in positions]
    peer.send(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=ids))


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_redelivery_counts_survive_an_unload(kind: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(kind=kind, permits=100)
        peer.send(send(1, 0, b"a"), send(1, 1, b"b"), send(1, 2, b"c"))
        await world.until(lambda: len(peer.messages) == 3, "messages")
        first, second, _ = (message.position for message in peer.messages)
        redeliver(peer, first, first, second)
        await world.until(lambda: len(peer.messages) == 5, "again")
        redeliver(peer, first)
        await world.until(lambda: len(peer.messages) == 6, "and again")
        assert [message.redelivery_count for message in peer.messages] == [0, 0, 0, 1, 1, 2]
        peer.ack(1, second)
        await world.broker.unload((await world.topic()).name)
        await peer.consumer(2, request_id=9, kind=kind, permits=100)
        await world.until(lambda: len(peer.messages) == 8, "after the unload")
        after = {message.position: message.redelivery_count for message in peer.messages[6:]}
        assert after[first] == 2
        assert sorted(after.values()) == [0, 2]
        # A seek begins anew.
        topic = await world.topic()
        await topic.subscriptions["s"].seek(first)
        await peer.consumer(3, request_id=10, kind=kind, permits=100)
        await world.until(lambda: len(peer.messages) == 11, "after the seek")
        assert [message.redelivery_count for message in peer.messages[8:]] == [0, 0, 0]

    in_world(story)
