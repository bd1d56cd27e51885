"""Damaged values of transactions in the metadata: what they said is unknown, and never lost."""

from __future__ import annotations

from typing import Final

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.transactions.coordinator import ANYBODY
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.metadata import keys
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, World, in_world, send
from support.transactions import TxnPeer, headers_in, restarted

ON: Final = BrokerConfig(transactions=True)
OTHER: Final = "persistent://public/default/other"
DAMAGE: Final = b'{"s": "OPE'


def bodies(peer: Peer) -> list[bytes]:
    return [each.entry[each.payload_at :] for each in peer.messages]


async def opened(world: World, topic: str = TOPIC) -> TxnPeer:
    peer = world.peer()
    await peer.producer(topic=topic)
    await peer.consumer(permits=100, topic=topic)
    return TxnPeer(peer)


async def left_damaged(world: World, *, commit: bool) -> TxnId:
    """A transaction with a message between two plain ones; the next process finds its header damaged."""
    client = await opened(world)
    client.peer.send(send(1, 0, b"before"))
    txn = await client.begin()
    await client.add_partitions(txn)
    await client.publish(txn, 1, b"inside")
    path = f"{keys.transaction_headers(0)}/{txn.sequence}"
    if commit:
        await client.commit(txn)
    client.peer.send(send(1, 2, b"after"))
    await world.settle()
    await world.store.put(path, DAMAGE)
    await restarted(world)
    return txn


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "open"])
def test_messages_of_a_damaged_header_are_not_delivered(
    caplog: pytest.LogCaptureFixture, commit: bool
) -> None:
    async def story(world: World) -> None:
        txn = await left_damaged(world, commit=commit)
        client = await opened(world)
        await world.until(lambda: client.peer.messages, "a message")
        await world.settle()
        assert bodies(client.peer) == [b"before"]
        # No client is told that it ended in one way or the other, and its time does not end it.
        for wanted in (True, False):
            answer = await client.end(txn, commit=wanted)
            assert answer.error == pb.TransactionNotFound
            assert f"{keys.transaction_headers(0)}/{txn.sequence}" in answer.message
            assert "magnetar transactions abort 0" in answer.message
        world.clock.advance(100_000_000)
        world.broker.alarms.ring()
        await world.settle()
        assert bodies(client.peer) == [b"before"]
        assert (await headers_in(world.store))[txn] == DAMAGE
        assert "is held back by transaction" in caplog.text
        topic = await opened(world, OTHER)
        topic.peer.send(send(1, 0, b"elsewhere"))
        await world.until(lambda: topic.peer.messages, "a message of another topic")

    in_world(story, ON)


@pytest.mark.parametrize(
    "part",
    [
        '"p":{"t":["x","y"]}',
        '"p":{"t":[1.5,2]}',
        '"p":{"t":[null,2]}',
        '"n":[1]',
        '"n":{"t":5}',
        '"r":5',
        '"l":-5',
        '"a":{"t":{"s":{"w":[["x",1,2]]}}}',
        '"a":{"t":{"s":{"b":[["x",1,2,3]]}}}',
        '"a":{"t":{"s":{"b":[[1,2,"x",3]]}}}',
        '"a":{"t":{"s":{"c":["x","y"]}}}',
        '"a":{"t":{"s":{"c":[1]}}}',
        '"a":{"t":{"s":{"c":[1,2,"x",3]}}}',
        '"p":{"tenant/topic":[1,2]}',
        '"p":{"a short name":[1,2]}',
        '"a":{"persistent://public/default/":{}}',
    ],
)
def test_a_header_with_other_kinds_of_values_cannot_be_read(part: str) -> None:
    """It would break its topics when they are loaded, or its end."""
    part = part.replace('"t":', f'"{TOPIC}":', 1)
    txn = Transaction(TxnId(0, 1), owner="", ttl_ms=1, started_ms=1, deadline_ms=1)
    txn.read(b'{"s":"OPEN","o":"me","t":5,"l":9,"p":{"%s":[1,2]}}' % TOPIC.encode(), 1)
    with pytest.raises(InvalidHeaderError):
        txn.read(b'{"s":"OPEN","o":"me","t":5,"l":9,%s}' % part.encode(), 1)


def test_a_restored_header_says_what_it_said() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"inside")
        path = f"{keys.transaction_headers(0)}/{txn.sequence}"
        good = (await headers_in(world.store))[txn]
        await world.store.put(path, DAMAGE)
        await restarted(world)
        await world.topic()
        await world.store.put(path, good)
        await restarted(world)
        client = await opened(world)
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"inside"], "the message")

    in_world(story, ON)


def test_an_operator_gives_up_a_damaged_transaction() -> None:
    """No topic with messages of it is loaded when the operator decides, and none of them delivers one."""

    async def story(world: World) -> None:
        txn = await left_damaged(world, commit=False)
        transactions = world.broker.transactions
        await transactions.take_up(txn)
        await transactions.end(txn, TxnState.ABORTED, ANYBODY)
        client = await opened(world)
        await world.until(lambda: bodies(client.peer) == [b"before", b"after"], "what is around it")
        await world.settle()
        await restarted(world)
        client = await opened(world)
        await world.until(lambda: bodies(client.peer) == [b"before", b"after"], "the same")
        answer = await client.end(txn, commit=True)
        assert answer.error == pb.InvalidTxnStatus

    in_world(story, ON)


def test_a_topic_that_cannot_be_searched_keeps_the_transaction_aborted_for_it() -> None:
    """One damaged topic kept an operator from giving up a transaction that held back all others."""

    async def story(world: World) -> None:
        txn = await left_damaged(world, commit=False)
        path = f"{keys.MANAGED_LEDGERS}/{TopicName.parse(TOPIC).log_name}"
        good = await world.store.get(path)
        assert good is not None
        await world.store.put(path, b"damaged")
        transactions = world.broker.transactions
        await transactions.take_up(txn)
        await transactions.end(txn, TxnState.ABORTED, ANYBODY)
        await world.settle()
        await restarted(world)
        await world.settle()
        await world.store.put(path, good.data)
        client = await opened(world)
        await world.until(lambda: bodies(client.peer) == [b"before", b"after"], "what is around it")

    in_world(story, ON)


def test_a_damaged_page_of_outcomes_is_put_aside_before_it_is_overwritten() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        over, *later = [await client.begin() for _ in range(3)]
        await client.commit(over)
        await swept(world, open_=2)
        await world.store.put(f"{keys.transaction_outcomes(0)}/0", b"damaged")
        for number, txn in enumerate(later, 1):
            await restarted(world)
            client = await opened(world)
            for commit in (True, False):
                answer = await client.end(over, commit=commit)
                assert answer.error == pb.TransactionNotFound
                assert "/outcomes/0/0" in answer.message or "/damaged-outcomes/0/0-" in answer.message
            assert await put_aside(world) == [b"damaged"] * (number > 1)
            await client.commit(txn)
            await swept(world, open_=2 - number)
            assert await put_aside(world) == [b"damaged"]
        await restarted(world)
        client = await opened(world)
        for txn in later:
            await client.commit(txn)

    in_world(story, ON)


async def swept(world: World, *, open_: int) -> None:
    """Headers of transactions that are over become outcomes."""
    await world.settle()
    world.clock.advance(2_000)
    world.broker.alarms.ring()
    await world.settle()
    assert len(await headers_in(world.store)) == open_


async def put_aside(world: World) -> list[bytes]:
    folder = keys.damaged_outcomes(0)
    values = [await world.store.get(f"{folder}/{name}") for name in await world.store.children(folder)]
    return [value.data for value in values if value is not None]
