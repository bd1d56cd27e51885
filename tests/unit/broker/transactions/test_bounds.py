"""How much a transaction may hold, what is in one transaction alone, and which roles may fill it."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.ids import Position
from magnetar.base.names import NamespaceName
from magnetar.broker.transactions import subscription_acks
from magnetar.broker.transactions.coordinator import TTL_MS_MAX
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.transaction import Transaction
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.commands import message_id_data
from magnetar.wire.frames import encode_command
from magnetar.wire.payload import build_batch, build_entry
from support.seen import Type
from support.sessions import TOPIC, World, command, encode_payload, in_world
from support.transactions import ON, TxnPeer, opened


async def batch_of(client: TxnPeer, count: int) -> Position:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count
    )
    singles = [(pb.SingleMessageMetadata(sequence_id=number), b"%d" % number) for number in range(count)]
    body = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=count, highest_sequence_id=count - 1)
    frame = pb.BaseCommand(type=Type.SEND, send=body)
    client.peer.send(encode_payload(frame, build_entry(metadata, build_batch(singles))))
    await client.peer.world.until(lambda: client.peer.messages, "the batch")
    return client.peer.messages[0].position


def test_a_transaction_acknowledges_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_acks, "ACKS_MAX", 2)

    async def story(world: World) -> None:
        client = await opened(world, messages=3)
        places = [message.position for message in client.peer.messages]
        txn = await client.begin()
        await client.add_subscription(txn)
        assert (await client.ack(txn, *places)).error == pb.NotAllowedError
        assert not (await client.ack(txn, *places[:2])).HasField("error")
        assert (await client.ack(txn, places[2])).error == pb.NotAllowedError
        await client.commit(txn)
        assert (await world.topic()).subscriptions["s"].backlog_entries == 1

    in_world(story, ON)


def test_a_transaction_lives_a_day_at_most() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        await client.begin(ttl_ms=TTL_MS_MAX)
        answer = await client.peer.ask(Type.NEW_TXN, request_id=5, txn_ttl_seconds=TTL_MS_MAX + 1)
        assert answer.error == pb.NotAllowedError

    in_world(story, ON)


def test_a_batch_is_in_one_transaction_where_one_takes_all_of_it() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        at = await batch_of(client, 3)
        part, whole = await client.begin(), await client.begin()
        for txn in (part, whole):
            await client.add_subscription(txn)
        assert not (await client.ack(part, at, ack_set=(0b110,))).HasField("error")
        assert (await client.ack(whole, at)).error == pb.TransactionConflict
        await client.abort(part)
        assert not (await client.ack(whole, at)).HasField("error")
        again = await client.begin()
        await client.add_subscription(again)
        assert (await client.ack(again, at, ack_set=(0b101,))).error == pb.TransactionConflict

    in_world(story, ON)


def test_a_batch_without_its_messages_is_what_is_left_of_it() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        at = await batch_of(client, 3)
        part, rest, again = [await client.begin() for _ in range(3)]
        for txn in (part, rest, again):
            await client.add_subscription(txn)
        assert not (await client.ack(part, at, ack_set=(0b110,))).HasField("error")
        await client.commit(part)
        assert not (await client.ack(rest, at)).HasField("error")
        assert (await client.ack(again, at, ack_set=(0b101,))).error == pb.TransactionConflict
        await client.commit(rest)
        assert (await client.ack(again, at)).error == pb.TransactionConflict
        assert (await world.topic()).subscriptions["s"].backlog_entries == 0

    in_world(story, ON)


def test_messages_of_a_batch_that_are_acknowledged_are_in_no_transaction() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        at = await batch_of(client, 3)
        data = message_id_data(at)
        data.ack_set.append(0b110)
        data.batch_size = 3
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[data], request_id=7)
        client.peer.send(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
        await client.peer.answer(7)
        txn = await client.begin()
        await client.add_subscription(txn)
        assert (await client.ack(txn, at, ack_set=(0b010,))).error == pb.TransactionConflict
        assert not (await client.ack(txn, at, ack_set=(0b001,))).HasField("error")

    in_world(story, ON)


def test_a_cumulative_acknowledgement_does_not_go_back() -> None:
    async def story(world: World) -> None:
        client = await opened(world, messages=3)
        places = [message.position for message in client.peer.messages]
        txn = await client.begin()
        await client.add_subscription(txn)
        assert not (await client.ack(txn, places[1], cumulative=True)).HasField("error")
        assert (await client.ack(txn, places[0], cumulative=True)).error == pb.TransactionConflict
        await client.commit(txn)
        assert (await world.topic()).subscriptions["s"].mark_delete == places[1]

    in_world(story, ON)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_nothing_is_acknowledged_cumulatively_where_consumers_share(kind: str) -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind=kind, messages=1)
        txn = await client.begin()
        await client.add_subscription(txn)
        at = client.peer.messages[0].position
        assert (await client.ack(txn, at, cumulative=True)).error == pb.NotAllowedError

    in_world(story, ON)


class ByName:
    """Each client has the role that it names."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())

    def counts(self, proof: str) -> bool:
        return True


def test_who_fills_a_transaction_has_the_permission() -> None:
    async def client_of(world: World, role: str) -> TxnPeer:
        peer = world.peer(connected=False)
        peer.send(
            command(
                Type.CONNECT,
                client_version="test",
                protocol_version=19,
                auth_method_name="name",
                auth_data=role.encode(),
            )
        )
        await world.until(lambda: peer.commands(Type.CONNECTED), "answer to CONNECT")
        return TxnPeer(peer)

    async def run() -> None:
        chain = Authentication({"name": ByName()})
        world = World(ON, authentication=chain, superuser_roles=frozenset(("root",)))
        await world.start()
        try:
            grants = {"writer": ["produce"], "reader": ["consume"]}
            await world.broker.policies.update_namespace(
                NamespaceName.parse("public/default"),
                lambda document: document.update(auth_policies={"namespace_auth": grants}),
            )
            await world.topic()
            for role, may_write in (("writer", True), ("reader", False)):
                client = await client_of(world, role)
                txn = await client.begin()
                written = await client.add_partitions(txn, TOPIC)
                assert written.HasField("error") is not may_write
                read = await client.add_subscription(txn)
                assert read.HasField("error") is may_write
                refused = read if may_write else written
                assert refused.error == pb.AuthorizationError
                # The transaction of another role is not known, whatever the permissions are.
                other = await client_of(world, "reader" if may_write else "writer")
                assert (await other.add_partitions(txn)).HasField("error")
                assert (await other.end(txn, commit=True)).error == pb.TransactionNotFound
                root = await client_of(world, "root")
                assert not (await root.end(txn, commit=False)).HasField("error")
        finally:
            await world.close()

    asyncio.run(run())


def test_a_header_keeps_what_clients_called_their_topics() -> None:
    def new() -> Transaction:
        return Transaction(TxnId(0, 1), owner='"role"', ttl_ms=1, started_ms=1, deadline_ms=1)

    txn = new()
    txn.names = {"persistent://a/b/c": "a/b/c", 'persistent://a/b/"ü\n': '"ü\n'}
    again = new()
    again.read(txn.header(), 1)
    assert (again.names, again.owner) == (txn.names, txn.owner)
