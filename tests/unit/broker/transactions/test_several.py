"""Transactions of one of several brokers, over a broker on fakes. Kills, moves and pauses: the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import part_path
from magnetar.broker.transactions.mirror import TopicPart
from magnetar.metadata import keys
from magnetar.wire import pulsar_pb2 as pb
from support.only_owner import OnlyOwner, share
from support.seen import Type
from support.sessions import TOPIC, World, send
from support.transactions import ON, TxnPeer, bodies, opened

LOG = TopicName.parse(TOPIC).log_name


def in_cluster(story: Callable[[World, OnlyOwner], Awaitable[None]]) -> None:
    """Runs a story on a started broker of a cluster."""

    async def run() -> None:
        world = World(ON)
        owners = share(world.broker)
        await world.start()
        try:
            await story(world, owners)
        finally:
            await world.close()

    asyncio.run(run())


async def part_of(world: World, txn: TxnId, log: str = LOG) -> TopicPart | None:
    value = await world.store.get(part_path(log, txn))
    return None if value is None else TopicPart.read(value.data, "part")


def test_messages_come_when_their_transaction_commits() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        assert await part_of(world, txn) is not None, "the part is there before the client is told"
        await client.publish(txn, 0, b"a")
        claimed = await part_of(world, txn)
        assert claimed is not None
        assert claimed.owner, "claimed before anything is taken"
        await world.settle()
        assert bodies(client.peer) == []
        await client.commit(txn)
        # On the answer all topics have done it, durably.
        assert bodies(client.peer) == [b"a"] or await world.until(lambda: bodies(client.peer), "messages")
        assert await part_of(world, txn) is None
        await client.commit(txn)
        world.broker.transactions.check()

    in_cluster(story)


def test_messages_of_an_aborted_transaction_never_come() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        await client.abort(txn)
        client.peer.send(send(1, 1, b"plain"))
        await world.until(lambda: bodies(client.peer) == [b"plain"], "messages")
        assert await part_of(world, txn) is None

    in_cluster(story)


def test_acknowledgements_are_in_the_part_before_they_are_answered() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world, messages=2)
        first, second = (each.position for each in client.peer.messages)
        txn = await client.begin()
        await client.add_subscription(txn)
        assert not (await client.ack(txn, first)).HasField("error")
        part = await part_of(world, txn)
        assert part is not None
        assert part.acks["s"].whole == {first}
        other = await client.begin()
        await client.add_subscription(other)
        assert (await client.ack(other, first)).error == pb.TransactionConflict
        await client.commit(txn)
        cursor = (await world.topic()).subscriptions["s"].cursor
        assert cursor.is_acked(first)
        assert not cursor.is_acked(second)

    in_cluster(story)


def test_what_a_producer_sends_behind_a_message_that_waits_keeps_its_order() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        # In one read: nothing is known of the transaction when the plain one comes.
        client.send(txn, 0, b"a")
        client.peer.send(send(1, 1, b"plain"))
        client.send(txn, 2, b"b")
        await world.until(lambda: len(client.peer.receipts) == 3, "receipts")
        assert [number for _, number, _ in client.peer.receipts] == [0, 1, 2]
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"a", b"plain", b"b"], "messages")

    in_cluster(story)


def test_a_message_for_a_topic_that_was_not_added_is_refused() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world)
        txn = await client.begin()
        client.send(txn, 0, b"a")
        error = await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        assert "was not added" in error[0].message
        await client.abort(txn)

    in_cluster(story)


def test_a_transaction_of_more_topics_than_one_write_takes() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = TxnPeer(world.peer())
        names = [f"persistent://public/default/many-{number}" for number in range(150)]
        txn = await client.begin()
        answer = await client.add_partitions(txn, *names)
        assert not answer.HasField("error")
        parts = [await part_of(world, txn, TopicName.parse(name).log_name) for name in names]
        assert None not in parts
        # None of them was ever made: their parts go when that is found.
        await client.abort(txn)
        path = keys.transaction_parts(TopicName.parse(names[0]).log_name)
        assert await world.store.children(path) == []

    in_cluster(story)


def test_a_coordinator_of_another_broker_is_not_found_here() -> None:
    async def story(world: World, owners: OnlyOwner) -> None:
        client = TxnPeer(world.peer())
        txn = await client.begin()
        owners.away.add(str(ASSIGN.with_partition(0)))
        assert (await client.end(txn, commit=True)).error == pb.TransactionCoordinatorNotFound
        owners.away.clear()
        await client.commit(txn)

    in_cluster(story)


def test_a_coordinator_that_another_process_overtook_is_read_anew() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = TxnPeer(world.peer())
        txn = await client.begin()
        path = f"{keys.transaction_headers(0)}/{txn.sequence}"
        value = await world.store.get(path)
        assert value is not None
        await world.store.put(path, value.data)
        answer = await client.end(txn, commit=True)
        assert answer.error == pb.TransactionCoordinatorNotFound, "clients ask again on this code"
        assert 0 not in world.broker.transactions.coordinators, "it is given up"
        await client.commit(txn)

    in_cluster(story)


def test_a_seek_aborts_what_acknowledges_there() -> None:
    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world, messages=2)
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, client.peer.messages[0].position)
        await world.broker.transactions.abort_of(TOPIC, "s", "a seek")
        answer = await client.end(txn, commit=True)
        assert answer.error == pb.InvalidTxnStatus
        assert "a seek" in answer.message

    in_cluster(story)


def test_open_transactions_of_the_other_kind_keep_a_broker_from_starting() -> None:
    async def story() -> None:
        world = World(ON)
        await world.start()
        await TxnPeer(world.peer()).begin()
        share(world.broker)
        with pytest.raises(NotAllowedError, match="a standalone server"):
            await world.broker.transactions.start()
        await world.close()

    async def the_other_way() -> None:
        world = World(ON)
        share(world.broker)
        await world.start()
        await TxnPeer(world.peer()).begin()
        alone = World(ON)
        alone.broker.store = world.store
        alone.broker.transactions._kept._store = world.store
        with pytest.raises(MetadataError, match="several brokers"):
            await alone.broker.transactions.start()
        await world.close()

    asyncio.run(story())
    asyncio.run(the_other_way())


def test_an_acknowledgement_of_a_transaction_that_is_over_is_refused_as_by_one_broker() -> None:
    """Clients begin anew on this code; on others they take it for a fault of their own."""

    async def story(world: World, _: OnlyOwner) -> None:
        client = await opened(world, messages=1)
        at = client.peer.messages[0].position
        over = await client.begin()
        await client.add_subscription(over)
        await client.abort(over)
        assert (await client.ack(over, at)).error in (pb.TransactionNotFound, pb.InvalidTxnStatus)
        txn = await client.begin()
        assert (await client.ack(txn, at)).error == pb.NotAllowedError, "its client forgot to add it"

    in_cluster(story)
