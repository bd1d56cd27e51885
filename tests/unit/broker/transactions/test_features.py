"""Transactions with features that look at messages: keys, quotas, WebSockets, schemas, pieces."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.broker.config import BrokerConfig
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.enforcement import enforce
from magnetar.broker.limits.limits import Limits
from magnetar.broker.transactions.ids import TxnId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry, entry_layout, parse_metadata
from support.seen import Type
from support.sessions import Peer, World, encode_payload, in_world, send
from support.transactions import TxnPeer
from support.websockets import Clients, payload_of, with_clients

ON = BrokerConfig(transactions=True)
PATH = "persistent/public/default/t"


def bodies(peer: Peer, consumer_id: int = 1) -> list[bytes]:
    messages = [each for each in peer.messages if each.consumer_id == consumer_id]
    return [each.entry[each.payload_at :] for each in messages]


def places(peer: Peer, consumer_id: int) -> list[Position]:
    return [each.position for each in peer.messages if each.consumer_id == consumer_id]


async def publish(
    client: TxnPeer, txn: TxnId | None, number: int, body: bytes, producer_id: int = 1, **fields: Any
) -> None:
    """A message with metadata of its own, once it has its receipt."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, **fields)
    command = pb.CommandSend(producer_id=producer_id, sequence_id=number)
    if txn is not None:
        command.txnid_most_bits, command.txnid_least_bits = txn
    frame = pb.BaseCommand(type=Type.SEND, send=command)
    peer, before = client.peer, len(client.peer.receipts)
    peer.send(encode_payload(frame, build_entry(metadata, body)))
    await peer.world.until(lambda: len(peer.receipts) > before, f"receipt of {number}")


async def begun(client: TxnPeer, *, acks: bool = False) -> TxnId:
    txn = await client.begin()
    await client.add_partitions(txn)
    if acks:
        await client.add_subscription(txn)
    return txn


def test_an_aborted_acknowledgement_comes_again_to_the_consumer_of_its_key() -> None:
    """Key_Shared: with another consumer in reach, and messages of other keys in between."""

    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        await client.peer.producer()
        for consumer_id in (1, 2):
            await client.peer.consumer(
                consumer_id, request_id=consumer_id + 1, kind="Key_Shared", permits=100
            )
        for number in range(12):
            await publish(client, None, number, b"%d" % number, partition_key=f"k{number % 6}")
        peer = client.peer
        await world.until(lambda: len(peer.messages) == 12, "messages")
        taken = {each: places(peer, each) for each in (1, 2)}
        assert all(taken.values()), "each of them has keys"
        texts = {each: bodies(peer, each) for each in (1, 2)}
        txn = await begun(client, acks=True)
        for each in (1, 2):
            assert not (await client.ack(txn, *taken[each], consumer_id=each)).HasField("error")
        await client.abort(txn)
        await world.until(lambda: len(peer.messages) == 24, "all of them again")
        for each in (1, 2):
            # The same consumer, and each key in its order.
            assert bodies(peer, each)[len(texts[each]) :] == texts[each]
        other = await begun(client, acks=True)
        for each in (1, 2):
            assert not (await client.ack(other, *taken[each], consumer_id=each)).HasField("error")
        await client.commit(other)
        assert (await world.topic()).subscriptions["s"].backlog_entries == 0

    in_world(story, ON)


def test_messages_of_a_transaction_keep_the_order_of_their_key() -> None:
    """Key_Shared: a message outside of it waits, as it came later."""

    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        await client.peer.producer()
        await client.peer.consumer(kind="Key_Shared", permits=100)
        txn = await begun(client)
        await publish(client, txn, 0, b"in it", partition_key="k")
        await publish(client, None, 1, b"after it", partition_key="k")
        await world.settle()
        assert bodies(client.peer) == []
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"in it", b"after it"], "both")

    in_world(story, ON)


def test_an_eviction_does_not_go_past_an_open_transaction(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        await client.peer.producer()
        await client.peer.consumer()
        client.peer.send(*(send(1, number, b"x" * 1000) for number in range(4)))
        await world.until(lambda: len(client.peer.receipts) == 4, "receipts")
        first = (await world.topic()).log.last_position
        txn = await begun(client)
        await publish(client, txn, 4, b"y" * 1000)
        client.peer.send(*(send(1, number, b"x" * 1000) for number in range(5, 9)))
        await world.until(lambda: len(client.peer.receipts) == 9, "receipts")
        topic = await world.topic()
        quota = BacklogQuota(QuotaKind.SIZE, 1000, QuotaPolicy.EVICT)
        for _ in range(2):
            await enforce(topic, Limits(quotas=(quota,)), world.clock.now_ms())
        # It is told once, with what is gone: it was told a hundred times, with what should be.
        (told,) = [each.getMessage() for each in caplog.records if "backlog quota" in each.getMessage()]
        assert str(first) in told
        subscription = topic.subscriptions["s"]
        # What came before is gone, though all that is left is more than the quota.
        assert subscription.backlog_entries == 5
        await client.commit(txn)
        await client.peer.consumer(2, request_id=9, subscription="late", permits=10)
        await world.until(lambda: bodies(client.peer, 2).count(b"y" * 1000) == 1, "the message")
        await enforce(topic, Limits(quotas=(quota,)), world.clock.now_ms())
        assert subscription.backlog_entries <= 1

    in_world(story, ON)


def test_websockets_get_what_is_committed() -> None:
    async def story(clients: Clients) -> None:
        world = clients.world
        client = TxnPeer(world.peer())
        await client.peer.producer()
        consumer = await clients.consumer(subscriptionType="Shared")
        reader = await clients.open(f"reader/{PATH}", messageId="earliest")
        lost, kept = await begun(client), await begun(client)
        await publish(client, lost, 0, b"lost")
        await publish(client, kept, 1, b"kept")
        await publish(client, None, 2, b"plain")
        await client.commit(kept)
        await world.settle()
        # The aborted one comes first, and is open still.
        for each in (consumer, reader):
            assert not each.texts
        await client.abort(lost)
        got = {each: await each.got(2) for each in (reader, consumer)}
        for found in got.values():
            assert [payload_of(document) for document in found] == [b"kept", b"plain"]
        subscription = (await world.topic()).subscriptions["s"]
        for document in got[consumer]:
            consumer.send({"messageId": document["messageId"]})
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")

    with_clients(story, config=ON)


def test_messages_of_a_transaction_keep_the_schema_versions_that_they_name() -> None:
    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        await client.peer.producer()
        txn = await begun(client)
        versions = [number.to_bytes(8, "big") for number in range(2)]
        for number, version in enumerate(versions):
            await publish(client, txn, number, b"%d" % number, schema_version=version)
        await client.commit(txn)
        await client.peer.consumer(permits=10)
        await world.until(lambda: len(client.peer.messages) == 2, "messages")
        found = []
        for message in client.peer.messages:
            _, start, stop = entry_layout(message.entry)
            found.append(parse_metadata(message.entry[start:stop]).schema_version)
        assert found == versions

    in_world(story, ON)


def test_pieces_of_an_aborted_message_do_not_get_between_those_of_a_committed_one() -> None:
    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        for producer_id in (1, 2):
            await client.peer.producer(producer_id, request_id=10 + producer_id)
        await client.peer.consumer(permits=100)
        lost, kept = await begun(client), await begun(client)
        for piece in range(3):
            more = {"chunk_id": piece, "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
            await publish(client, lost, piece, b"x", uuid="lost", **more)
            await publish(client, kept, piece, b"%d" % piece, 2, uuid="kept", **more)
        await client.abort(lost)
        await client.commit(kept)
        await world.until(lambda: bodies(client.peer) == [b"0", b"1", b"2"], "the pieces")
        # An abort in the middle: those that are there already never come, and the next message does.
        half = await begun(client)
        await publish(client, half, 3, b"x", uuid="half", chunk_id=0, num_chunks_from_msg=2)
        await client.abort(half)
        await publish(client, None, 4, b"plain")
        await world.until(lambda: bodies(client.peer)[3:] == [b"plain"], "the next message")
        at = client.peer.messages
        client.peer.ack(1, *(each.position for each in at))
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")

    in_world(story, ON)
