"""Transactions as clients use them, over a broker on fakes."""

from __future__ import annotations

import pytest

from magnetar.broker.service import BrokerConfig
from magnetar.broker.transactions.stamp import transaction_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from support.seen import Type
from support.sessions import TOPIC, World, in_world, send
from support.transactions import ON, bodies, opened


def test_messages_come_when_their_transaction_commits() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        await client.publish(txn, 1, b"b")
        await world.settle()
        assert bodies(client.peer) == []
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"a", b"b"], "messages")
        world.broker.transactions.check()

    in_world(story, ON)


def test_messages_of_an_aborted_transaction_never_come_and_are_no_backlog() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        client.peer.send(send(1, 1, b"plain"))
        await world.settle()
        assert bodies(client.peer) == []
        await client.abort(txn)
        await world.until(lambda: bodies(client.peer) == [b"plain"], "messages")
        client.peer.ack(1, client.peer.messages[0].position)
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")
        # A reader that begins at the first message sees the same.
        await client.peer.consumer(2, request_id=9, subscription="later", permits=10)
        await world.until(lambda: bodies(client.peer, 2) == [b"plain"], "messages")

    in_world(story, ON)


def test_an_entry_names_its_transaction_whatever_the_client_wrote() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        position = await client.publish(txn, 0, b"a")
        topic = await world.topic()
        (run,) = await topic.log.reading.read(position, 1 << 20, 1)
        assert transaction_of(run.entries[0]) == txn

    in_world(story, ON)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared", "Failover"])
@pytest.mark.parametrize("commit", [True, False])
def test_acknowledgements_count_with_their_transaction(kind: str, commit: bool) -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind=kind)
        peer = client.peer
        peer.send(*(send(1, number, b"%d" % number) for number in range(3)))
        await world.until(lambda: len(peer.messages) == 3, "messages")
        txn = await client.begin()
        await client.add_subscription(txn)
        positions = [message.position for message in peer.messages]
        answer = await client.ack(txn, positions[0], positions[1])
        assert not answer.HasField("error"), answer
        subscription = (await world.topic()).subscriptions["s"]
        assert subscription.backlog_entries == 3
        await client.end(txn, commit=commit)
        if commit:
            assert subscription.backlog_entries == 1
            await world.settle()
            assert len(peer.messages) == 3
        else:
            assert subscription.backlog_entries == 3
            await world.until(lambda: len(peer.messages) >= 5, "again")
            again = [message.position for message in peer.messages[3:]]
            assert again[:2] == positions[:2]
            if kind == "Shared":
                assert [message.redelivery_count for message in peer.messages[3:]] == [1, 1]
        world.broker.transactions.check()

    in_world(story, ON)


def test_what_is_acknowledged_in_a_transaction_is_in_no_other() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        peer = client.peer
        peer.send(send(1, 0), send(1, 1))
        await world.until(lambda: len(peer.messages) == 2, "messages")
        first, second = (message.position for message in peer.messages)
        one, two = await client.begin(), await client.begin()
        for txn in (one, two):
            await client.add_subscription(txn)
        assert not (await client.ack(one, first)).HasField("error")
        assert not (await client.ack(one, first)).HasField("error")
        assert (await client.ack(two, first)).error == pb.TransactionConflict
        peer.ack(1, second)
        assert (await client.ack(two, second)).error == pb.TransactionConflict
        await client.abort(one)
        await world.until(lambda: len(peer.messages) == 3, "again")
        assert not (await client.ack(two, first)).HasField("error")
        await client.commit(two)
        assert (await world.topic()).subscriptions["s"].backlog_entries == 0

    in_world(story, ON)


def test_the_end_is_told_again_and_never_changes() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        for commit in (True, False):
            txn = await client.begin()
            await client.add_partitions(txn)
            await client.end(txn, commit=commit)
            for _ in range(2):
                assert not (await client.end(txn, commit=commit)).HasField("error")
                assert (await client.end(txn, commit=not commit)).error == pb.InvalidTxnStatus
                world.clock.advance(2_000)
                world.broker.alarms.ring()
                await world.settle()
            assert (await client.add_partitions(txn)).error == pb.InvalidTxnStatus
        assert not world.broker.transactions.coordinators[0].transactions

    in_world(story, ON)


def test_what_is_not_known_is_told() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = (await client.begin())._replace(sequence=77)
        assert (await client.end(txn, commit=True)).error == pb.TransactionNotFound
        assert (await client.add_partitions(txn)).error == pb.TransactionNotFound
        strange = txn._replace(coordinator=99)
        assert (await client.end(strange, commit=True)).error == pb.TransactionCoordinatorNotFound
        answer = await client.peer.ask(Type.TC_CLIENT_CONNECT_REQUEST, request_id=5, tc_id=99)
        assert answer.error == pb.TransactionCoordinatorNotFound
        answer = await client.peer.ask(Type.TC_CLIENT_CONNECT_REQUEST, request_id=6, tc_id=15)
        assert not answer.HasField("error")

    in_world(story, ON)


def test_a_late_message_is_refused_and_holds_nobody_back() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.commit(txn)
        client.send(txn, 0, b"late")
        await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        assert client.peer.commands(Type.SEND_ERROR)[0].error == pb.NotAllowedError
        client.peer.send(send(1, 1, b"plain"))
        await world.until(lambda: bodies(client.peer) == [b"plain"], "messages")
        other = await client.begin()
        client.send(other, 2, b"not added")
        await world.until(lambda: len(client.peer.commands(Type.SEND_ERROR)) == 2, "refusal")

    in_world(story, ON)


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin(ttl_ms=5_000)
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        client.peer.send(send(1, 1, b"plain"))
        world.clock.advance(4_999)
        world.broker.alarms.ring()
        await world.settle()
        assert bodies(client.peer) == []
        world.clock.advance(1)
        world.broker.alarms.ring()
        await world.until(lambda: bodies(client.peer) == [b"plain"], "messages")
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus
        assert not (await client.end(txn, commit=False)).HasField("error")

    in_world(story, ON)


@pytest.mark.parametrize("end", ["commit", "abort", "none"])
def test_an_unload_changes_nothing(end: str) -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        peer = client.peer
        peer.send(send(1, 0, b"first"))
        await world.until(lambda: len(peer.messages) == 1, "messages")
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.add_subscription(txn)
        await client.publish(txn, 1, b"a")
        await client.ack(txn, peer.messages[0].position)
        topic = await world.topic()
        await world.broker.unload(topic.name)
        if end == "commit":
            await client.commit(txn)
        elif end == "abort":
            await client.abort(txn)
        await peer.producer(request_id=21)
        await peer.consumer(request_id=22, permits=10, kind="Shared")
        peer.send(send(1, 2, b"plain"))
        await world.settle()
        expected = {
            "commit": [b"first", b"a", b"plain"],
            "abort": [b"first", b"first", b"plain"],
            "none": [b"first"],
        }
        await world.until(lambda: bodies(peer) == expected[end], "messages")
        if end == "none":
            await client.publish(txn, 3, b"b")
            await client.commit(txn)
            await world.until(lambda: bodies(peer)[1:] == [b"a", b"plain", b"b"], "messages")
        world.broker.transactions.check()

    in_world(story, ON)


def test_a_seek_has_the_last_word() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        peer = client.peer
        peer.send(send(1, 0, b"a"))
        await world.until(lambda: len(peer.messages) == 1, "messages")
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, peer.messages[0].position)
        await peer.ask(Type.SEEK, consumer_id=1, request_id=31, message_publish_time=1)
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus
        await peer.consumer(request_id=32)
        peer.send(encode_flow(1, 10))
        await world.until(lambda: bodies(peer) == [b"a", b"a"], "again")

    in_world(story, ON)


def test_cumulative_acknowledgements() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        peer = client.peer
        peer.send(*(send(1, number) for number in range(4)))
        await world.until(lambda: len(peer.messages) == 4, "messages")
        places = [message.position for message in peer.messages]
        one, two = await client.begin(), await client.begin()
        for txn in (one, two):
            await client.add_subscription(txn)
        assert not (await client.ack(one, places[1], cumulative=True)).HasField("error")
        assert (await client.ack(two, places[2], cumulative=True)).error == pb.TransactionConflict
        assert (await client.ack(two, places[0])).error == pb.TransactionConflict
        assert not (await client.ack(one, places[2], cumulative=True)).HasField("error")
        await client.commit(one)
        assert (await world.topic()).subscriptions["s"].mark_delete == places[2]
        assert (await client.ack(two, places[2], cumulative=True)).error == pb.TransactionConflict
        assert not (await client.ack(two, places[3], cumulative=True)).HasField("error")
        await client.abort(two)
        await world.until(lambda: len(peer.messages) == 5, "again")

    in_world(story, ON)


def test_a_full_coordinator_answers() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        for _ in range(2):
            await client.begin()
        answer = await client.peer.ask(Type.NEW_TXN, request_id=77, txn_ttl_seconds=1_000)
        assert answer.error == pb.TooManyRequests

    in_world(story, BrokerConfig(transactions=True, transactions_open_max=2))


def test_where_they_are_off_clients_hear_it() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        answer = await client.peer.ask(Type.NEW_TXN, request_id=77, txn_ttl_seconds=1_000)
        assert answer.error == pb.NotAllowedError
        assert "not enabled" in answer.message

    in_world(story, BrokerConfig(transactions=False))


def test_clients_find_coordinators_as_partitions() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        name = "persistent://pulsar/system/transaction_coordinator_assign"
        answer = await peer.ask(Type.PARTITIONED_METADATA, request_id=1, topic=name)
        assert answer.partitions == 16
        answer = await peer.ask(Type.LOOKUP, request_id=2, topic=f"{name}-partition-3")
        assert answer.response == pb.CommandLookupTopicResponse.Connect
        assert TOPIC not in world.broker.topics

    in_world(story, ON)
