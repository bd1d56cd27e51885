"""A client that ends its transaction before it has the receipts: no message is left out of a commit."""

from __future__ import annotations

import asyncio

from fakes.ledgers import write_error
from magnetar.broker.config import BrokerConfig
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.transaction import MISSING_MAX, Transaction
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Peer, World, in_world
from support.transactions import TxnPeer

ON = BrokerConfig(transactions=True)


def bodies(peer: Peer) -> list[bytes]:
    return [each.entry[each.payload_at :] for each in peer.messages]


async def begun(world: World) -> tuple[TxnPeer, TxnId]:
    """A transaction with a durable message, of a producer with a name."""
    client = TxnPeer(world.peer())
    await client.peer.producer(producer_name="p")
    txn = await client.begin()
    await client.add_partitions(txn)
    await client.publish(txn, 0, b"first")
    return client, txn


async def lose_one(world: World, client: TxnPeer, txn: TxnId) -> None:
    """Storage fails beneath a message, and a client that comes back has the topic loaded anew: it knows of
    durable messages only."""
    topic = await world.topic()
    world.ledgers.auto_sync = False
    client.send(txn, 1, b"lost")
    await world.settle()
    world.ledgers.writer(topic.log.last_position.ledger_id).fail(write_error())
    world.ledgers.auto_sync = True
    await world.broker.unload(topic.name)
    assert (await world.topic()) is not topic


async def readers_get(world: World, wanted: list[bytes]) -> None:
    reader = world.peer()
    await reader.consumer(9, request_id=90, permits=100)
    await world.until(lambda: len(bodies(reader)) >= len(wanted), "messages")
    await world.settle()
    assert bodies(reader) == wanted


def refused(answer: object) -> bool:
    assert isinstance(answer, pb.CommandEndTxnResponse)
    return answer.error == pb.InvalidTxnStatus and "unloaded" in answer.message


def test_a_message_that_comes_while_its_topic_is_unloaded_is_not_left_out_of_a_commit() -> None:
    """The topic is closing: it drops the SEND without an answer, and the producer is to send it again."""

    async def story(world: World) -> None:
        client, txn = await begun(world)
        topic = await world.topic()
        unloading = asyncio.ensure_future(world.broker.unload(topic.name))
        await world.until(lambda: topic.closed, "begins to close")
        client.send(txn, 1, b"second")
        ended = await client.end(txn, commit=True)
        await unloading
        assert refused(ended)
        await readers_get(world, [])

    in_world(story, ON)


def test_a_message_for_a_producer_that_was_closed_is_not_left_out_of_a_commit() -> None:
    async def story(world: World) -> None:
        client, txn = await begun(world)
        await world.broker.unload((await world.topic()).name)
        client.send(txn, 1, b"second")
        assert refused(await client.end(txn, commit=True))
        # The same again, and not the opposite.
        assert refused(await client.end(txn, commit=True))
        await client.abort(txn)
        await readers_get(world, [])

    in_world(story, ON)


def test_a_message_for_a_topic_that_was_terminated_is_not_left_out_of_a_commit() -> None:
    """Its producers are sent away too, and are told when they come back that it takes nothing more."""

    async def story(world: World) -> None:
        client, txn = await begun(world)
        await (await world.topic()).terminate()
        client.send(txn, 1, b"second")
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus
        await readers_get(world, [])

    in_world(story, ON)


def test_a_message_that_is_sent_again_is_in_its_transaction() -> None:
    """As official clients do: they open the producer anew and send what has no receipt."""

    async def story(world: World) -> None:
        client, txn = await begun(world)
        await world.broker.unload((await world.topic()).name)
        client.send(txn, 1, b"second")
        await client.peer.producer(2, request_id=70, producer_name="p")
        await client.publish(txn, 1, b"second", 2)
        await client.commit(txn)
        await readers_get(world, [b"first", b"second"])

    in_world(story, ON)


def test_a_dropped_message_of_an_ended_transaction_changes_nothing() -> None:
    async def story(world: World) -> None:
        client, txn = await begun(world)
        await client.commit(txn)
        await world.broker.unload((await world.topic()).name)
        client.send(txn, 1, b"late")
        await client.commit(txn)
        await readers_get(world, [b"first"])

    in_world(story, ON)


def test_a_message_that_was_lost_is_missing_after_its_topic_is_loaded_anew() -> None:
    async def story(world: World) -> None:
        client, txn = await begun(world)
        await lose_one(world, client, txn)
        answer = await client.end(txn, commit=True)
        assert answer.error == pb.InvalidTxnStatus
        await readers_get(world, [])

    in_world(story, ON)


def test_a_transaction_that_lost_a_message_cannot_commit_after_it_is_sent_again() -> None:
    """Its application repeats it: the broker does not tell which of its messages were lost."""

    async def story(world: World) -> None:
        client, txn = await begun(world)
        await lose_one(world, client, txn)
        again = TxnPeer(world.peer())
        await again.peer.producer(5, request_id=70, producer_name="p")
        await again.publish(txn, 1, b"lost", 5)
        assert (await again.end(txn, commit=True)).error == pb.InvalidTxnStatus
        await readers_get(world, [])

    in_world(story, ON)


def test_what_is_remembered_of_dropped_messages_is_bounded() -> None:
    txn = Transaction(TxnId(0, 1), owner="", ttl_ms=1, started_ms=1, deadline_ms=1)
    txn.missed("t", "p", range(MISSING_MAX))
    assert not txn.lost
    txn.found("t", "p", range(MISSING_MAX))
    assert not txn.missing
    txn.missed("t", "p", range(MISSING_MAX + 1))
    assert (txn.lost, txn.missing) == (True, set())
