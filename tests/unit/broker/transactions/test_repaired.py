"""Faults that a review of transactions found; each test failed before its repair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.transactions import transactions
from magnetar.broker.transactions.batch_sizes import measure_batches
from magnetar.broker.transactions.ids import TxnId
from magnetar.managedlog.log_reading import LogReading
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from magnetar.wire.sends import encode_send
from support.seen import Type
from support.sessions import World, encode_payload, in_world, send
from support.transactions import ON, TxnPeer, bodies, opened, restarted


async def sweep(world: World) -> None:
    """Headers of transactions that are over become outcomes."""
    await world.settle()
    world.clock.advance(2_000)
    world.broker.alarms.ring()
    await world.settle()


def test_an_abort_while_the_topic_is_not_loaded_holds_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        # It is not acknowledged: its ledger is not trimmed.
        client.peer.send(send(1, 5, b"first"))
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"aborted")
        name = (await world.topic()).name
        await world.broker.unload(name)
        give = world.broker._in_force.give

        async def slowly(topic: Any) -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            await give(topic)

        # Loading takes a while after the topic has learnt of the abort.
        monkeypatch.setattr(world.broker._in_force, "give", slowly)
        await client.abort(txn)
        await sweep(world)
        assert not world.broker.transactions.coordinators[0].transactions
        await restarted(world)
        peer = world.peer()
        await peer.producer(7, request_id=70)
        peer.send(send(7, 0, b"plain"))
        await peer.consumer(8, request_id=71, subscription="later", permits=10)
        await world.until(lambda: bodies(peer, 8) == [b"first", b"plain"], "plain messages alone")

    in_world(story, ON)


def test_a_message_that_only_pretends_to_be_in_a_transaction_is_refused() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        metadata = pb.MessageMetadata(
            producer_name="p",
            sequence_id=0,
            publish_time=1,
            txnid_most_bits=txn.coordinator,
            txnid_least_bits=txn.sequence,
        )
        client.peer.send(encode_send(1, 0, 1, build_entry(metadata, b"forged")), send(1, 1, b"plain"))
        await world.until(lambda: bodies(client.peer) == [b"plain"], "the plain message")
        assert client.peer.commands(Type.SEND_ERROR)[0].error == pb.NotAllowedError
        assert bodies(client.peer) == [b"plain"]

    in_world(story, ON)


def test_a_message_is_in_one_transaction_also_when_another_acknowledges_all_before() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        peer = client.peer
        peer.send(*(send(1, number) for number in range(5)))
        await world.until(lambda: len(peer.messages) == 5, "messages")
        places = [message.position for message in peer.messages]
        one, two = await client.begin(), await client.begin()
        for txn in (one, two):
            await client.add_subscription(txn)
        assert not (await client.ack(one, places[2])).HasField("error")
        assert (await client.ack(two, places[4], cumulative=True)).error == pb.TransactionConflict
        assert not (await client.ack(two, places[1], cumulative=True)).HasField("error")
        # What it acknowledged itself it may acknowledge again.
        assert not (await client.ack(two, places[0])).HasField("error")
        await client.commit(one)
        await client.commit(two)
        assert (await world.topic()).subscriptions["s"].mark_delete == places[2]

    in_world(story, ON)


async def batch_of(client: TxnPeer, count: int) -> None:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count
    )
    singles = [(pb.SingleMessageMetadata(sequence_id=number), b"%d" % number) for number in range(count)]
    command = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=count, highest_sequence_id=count - 1)
    frame = pb.BaseCommand(type=Type.SEND, send=command)
    client.peer.send(encode_payload(frame, build_entry(metadata, build_batch(singles))))
    await client.peer.world.until(lambda: len(client.peer.messages) == 1, "the batch")


def test_the_size_of_a_batch_is_not_the_clients_to_say() -> None:
    # 2^31-1 held the loop for minutes; 1 acknowledged a batch of ten; none made two transactions conflict.
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        await batch_of(client, 10)
        at = client.peer.messages[0].position
        one, two, three = [await client.begin() for _ in range(3)]
        for txn in (one, two, three):
            await client.add_subscription(txn)
        first = await client.ack(one, at, ack_set=(0b1111111110,), batch_size=2**31 - 1)
        assert not first.HasField("error"), first
        second = await client.ack(two, at, ack_set=(0b1111111101,))
        assert not second.HasField("error"), second
        third = await client.ack(three, at, ack_set=(0b1111111111,), batch_size=1)
        assert not third.HasField("error"), third
        for txn in (one, two, three):
            await client.commit(txn)
        subscription = (await world.topic()).subscriptions["s"]
        assert subscription.backlog_entries == 1
        assert subscription.cursor.ack_set(at) == (0b1111111100,)

    in_world(story, ON)


@pytest.mark.parametrize("how", ["seek", "deletion", "nothing"])
def test_no_acknowledgement_from_before_a_seek_or_a_deletion_is_recorded(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A commit acknowledged again what the seek had brought back."""

    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        await batch_of(client, 10)
        at = client.peer.messages[0].position
        subscription = (await world.topic()).subscriptions["s"]
        txn = await client.begin()
        await client.add_subscription(txn)
        measures, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any) -> None:
            measures.set()
            await go_on.wait()
            await measure_batches(*args)

        monkeypatch.setattr(transactions, "measure_batches", slowly)
        answered = asyncio.ensure_future(client.ack(txn, at, ack_set=(0b1111111110,)))
        await measures.wait()
        if how == "seek":
            await subscription.seek_message(at)
        elif how == "deletion":
            await (await world.topic()).drop_subscription(subscription)
        go_on.set()
        answer = await answered
        assert answer.HasField("error") is (how != "nothing"), answer
        if how != "nothing":
            assert answer.error == pb.TransactionConflict
        await client.commit(txn)
        assert subscription.cursor.ack_set(at) == ((0b1111111110,) if how == "nothing" else None)

    in_world(story, ON)


def test_a_transaction_that_concerns_too_much_can_still_end() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        for end in (client.commit, client.abort):
            txn = await client.begin()
            await client.add_partitions(txn)
            refused = False
            for number in range(40):
                names = [f"persistent://public/default/{number}-{i}-{'x' * 300}" for i in range(50)]
                answer = await client.add_partitions(txn, *names)
                refused = refused or answer.error == pb.NotAllowedError
            assert refused
            await client.publish(txn, 1 if end == client.commit else 2, b"in it")
            await end(txn)
        client.peer.send(send(1, 9, b"plain"))
        await world.until(lambda: bodies(client.peer) == [b"in it", b"plain"], "messages")

    in_world(story, ON)


def test_the_last_message_is_known_behind_an_aborted_tail_after_an_unload() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0, b"plain"))
        await world.until(lambda: len(client.peer.messages) == 1, "the plain message")
        at = client.peer.messages[0].position
        txn = await client.begin()
        await client.add_partitions(txn)
        for number in range(1, 4):
            await client.publish(txn, number, b"aborted")
        await client.abort(txn)
        name = (await world.topic()).name
        for _ in range(2):
            assert (await (await world.topic()).last_message())[0] == at
            await world.broker.unload(name)

    in_world(story, ON)


def test_a_commit_while_the_topic_is_loading_holds_nobody_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"in it")
        topic = await world.topic()
        await world.broker.unload(topic.name)
        read = LogReading.read_intact

        async def committed_meanwhile(*given: Any) -> Any:
            # The topic's log is being searched: it is not loaded yet, and takes the transaction for open.
            monkeypatch.setattr(LogReading, "read_intact", read)
            found = await read(*given)
            await client.commit(txn)
            return found

        monkeypatch.setattr(LogReading, "read_intact", committed_meanwhile)
        topic = await world.topic()
        assert LogReading.read_intact is read, "it was searched"
        assert topic.transactions is None or not len(topic.transactions.spans)
        await client.peer.consumer(3, request_id=33, subscription="later", permits=10)
        await world.until(lambda: bodies(client.peer, 3) == [b"in it"], "the message")

    in_world(story, ON)


def test_what_is_hidden_stays_so_when_transactions_are_turned_off() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn, still = await client.begin(), await client.begin()
        await client.add_partitions(txn)
        await client.add_partitions(still)
        await client.publish(txn, 0, b"aborted")
        await client.abort(txn)
        await client.publish(still, 1, b"open")
        await sweep(world)
        await restarted(world, BrokerConfig(transactions=False))
        peer = world.peer()
        await peer.consumer(4, request_id=40, subscription="later", permits=10)
        await world.settle()
        assert bodies(peer, 4) == []
        world.clock.advance(100_000)
        world.broker.alarms.ring()
        await peer.producer(5, request_id=50)
        peer.send(send(5, 0, b"plain"))
        await world.until(lambda: bodies(peer, 4) == [b"plain"], "the plain message alone")
        assert TxnId(0, 0) == txn

    in_world(story, ON)
