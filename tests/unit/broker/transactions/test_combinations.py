"""Transactions with the other features of topics: the table of docs/transactions.md."""

from __future__ import annotations

from typing import Any

from magnetar.base.entries import LEFT_OUT
from magnetar.broker.limits.enforcement import enforce
from magnetar.broker.limits.limits import Limits
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.stamp import stamped, transaction_of
from magnetar.managedlog.config import Retention
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command
from magnetar.wire.payload import build_batch, build_entry, checksum_matches, split_entry
from support.seen import Type
from support.sessions import World, encode_payload, in_world, send
from support.transactions import ON, TxnPeer, bodies, opened


def with_metadata(client: TxnPeer, txn: Any, sequence_id: int, body: bytes, **fields: Any) -> None:
    """A SEND of a message with more metadata; `txn` None: outside of transactions."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **fields)
    command = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
    if txn is not None:
        command.txnid_most_bits, command.txnid_least_bits = txn
    frame = pb.BaseCommand(type=Type.SEND, send=command)
    client.peer.send(encode_payload(frame, build_entry(metadata, body)))


def test_an_open_transaction_does_not_expire_and_is_not_trimmed() -> None:
    async def story(world: World) -> None:
        client = await opened(world, permits=0)
        client.peer.send(send(1, 0, b"plain"))
        txn = await client.begin(ttl_ms=3_600_000)
        await client.add_partitions(txn)
        await client.publish(txn, 1, b"in it")
        topic = await world.topic()
        topic.log.retention = Retention(0, 0)
        world.clock.advance(600_000)
        await enforce(topic, Limits(ttl_s=60), world.clock.now_ms())
        subscription = topic.subscriptions["s"]
        # What came before has expired, what may still be committed has not.
        assert subscription.backlog_entries == 1
        await subscription.skip_all()
        assert subscription.backlog_entries == 1
        await topic.log.trim()
        await client.commit(txn)
        await client.peer.consumer(2, request_id=9, subscription="s2", permits=10)
        await world.until(lambda: b"in it" in bodies(client.peer, 2), "the message")

    in_world(story, ON)


def test_delayed_messages_are_due_after_the_commit_and_never_after_an_abort() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        lost, kept = await client.begin(), await client.begin()
        for txn in (lost, kept):
            await client.add_partitions(txn)
        at = world.clock.now_ms() + 30_000
        with_metadata(client, lost, 0, b"lost", deliver_at_time=at)
        with_metadata(client, kept, 1, b"kept", deliver_at_time=at)
        await world.until(lambda: len(client.peer.receipts) == 2, "receipts")
        await client.abort(lost)
        await client.commit(kept)
        await world.settle()
        assert bodies(client.peer) == []
        world.clock.advance(40_000)
        world.broker.alarms.ring()
        await world.until(lambda: bodies(client.peer) == [b"kept"], "the message")

    in_world(story, ON)


def test_the_compacted_view_has_the_last_committed_value() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        with_metadata(client, None, 0, b"old", partition_key="k")
        kept, lost, still = [await client.begin() for _ in range(3)]
        for txn in (kept, lost, still):
            await client.add_partitions(txn)
        with_metadata(client, kept, 1, b"kept", partition_key="k")
        with_metadata(client, lost, 2, b"lost", partition_key="k")
        with_metadata(client, still, 3, b"open", partition_key="k")
        await world.until(lambda: len(client.peer.receipts) == 4, "receipts")
        await client.commit(kept)
        await client.abort(lost)
        topic = await world.topic()
        topic.compaction.start()
        await world.until(lambda: topic.compaction.status.value != "RUNNING", "compaction")
        assert topic.compaction.error == ""
        peer = world.peer()
        await peer.consumer(5, subscription="view", read_compacted=True, permits=10)
        await world.until(lambda: bodies(peer, 5) == [b"kept"], "the view")
        await client.commit(still)
        await world.until(lambda: bodies(peer, 5) == [b"kept", b"open"], "what came after")

    in_world(story, ON)


def test_ledgers_are_copied_when_it_is_known_for_good_what_readers_get() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        topic = await world.topic()
        # Sealed, and opened anew.
        await world.broker.unload(topic.name)
        topic = await world.topic()
        assert [ledger.held for ledger in topic.log.offloading.sealed()] == [True]
        await client.commit(txn)
        assert [ledger.held for ledger in topic.log.offloading.sealed()] == [False]
        other = await client.begin()
        await client.add_partitions(other)
        await client.peer.producer(request_id=41)
        await client.publish(other, 1, b"b")
        await client.abort(other)
        await world.broker.unload(topic.name)
        topic = await world.topic()
        first, second = topic.log.offloading.sealed()
        assert (first.held, second.held) == (False, False)
        (kept,), (lost,) = [
            await topic.log.offloading.read(each.ledger_id, 0, 99) for each in (first, second)
        ]
        assert kept.entries[0].endswith(b"a")
        assert lost.entries == [LEFT_OUT]

    in_world(story, ON)


def test_duplicates_are_dropped_in_transactions_too() -> None:
    async def story(world: World) -> None:
        await world.broker.policies.update_namespace(
            (await world.topic()).name.namespace_name,
            lambda document: document.__setitem__("deduplicationEnabled", True),
        )
        await world.broker.apply_policies()
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 5, b"a")
        client.send(txn, 5, b"a")
        await world.until(lambda: len(client.peer.receipts) == 2, "both receipts")
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"a"], "one message")
        await world.settle()
        assert bodies(client.peer) == [b"a"]

    in_world(story, ON)


def test_a_number_of_an_aborted_message_is_refused_in_another_transaction() -> None:
    # It was dropped as a duplicate, and its transaction committed without it.
    async def story(world: World) -> None:
        await world.broker.policies.update_namespace(
            (await world.topic()).name.namespace_name,
            lambda document: document.__setitem__("deduplicationEnabled", True),
        )
        await world.broker.apply_policies()
        client = await opened(world)
        lost, kept = await client.begin(), await client.begin()
        for txn in (lost, kept):
            await client.add_partitions(txn)
        await client.publish(lost, 5, b"a")
        await client.abort(lost)
        client.send(kept, 5, b"a")
        await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        await client.publish(kept, 6, b"b")
        client.send(kept, 6, b"b")
        await world.until(lambda: len(client.peer.receipts) == 3, "the duplicate's receipt")
        await client.commit(kept)
        await world.until(lambda: bodies(client.peer) == [b"b"], "the message")

    in_world(story, ON)


def test_naming_the_transaction_leaves_the_payload_alone() -> None:
    # Encrypted, compressed and chunked payloads pass through: only fields are added to the metadata.
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, schema_version=b"\0\0\0\0\0\0\0\3", chunk_id=1
    )
    metadata.encryption_keys.add(key="k", value=b"v")
    before = build_entry(metadata, b"\xb0\x01 opaque")
    after = stamped(before, TxnId(7, 9))
    assert checksum_matches(after)
    assert bytes(split_entry(after).payload) == b"\xb0\x01 opaque"
    assert transaction_of(after) == (7, 9)
    parsed = pb.MessageMetadata.FromString(split_entry(after).metadata)
    parsed.ClearField("txnid_least_bits")
    parsed.ClearField("txnid_most_bits")
    assert parsed == metadata
    assert stamped(after, TxnId(7, 9)) is after


def test_a_batch_comes_back_with_the_messages_of_the_aborted_transaction() -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Shared")
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=4
        )
        four = [(pb.SingleMessageMetadata(sequence_id=number), b"%d" % number) for number in range(4)]
        command = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=4, highest_sequence_id=3)
        frame = pb.BaseCommand(type=Type.SEND, send=command)
        client.peer.send(encode_payload(frame, build_entry(metadata, build_batch(four))))
        await world.until(lambda: len(client.peer.messages) == 1, "the batch")
        at = client.peer.messages[0].position
        one, two = await client.begin(), await client.begin()
        for txn in (one, two):
            await client.add_subscription(txn)
        # A set bit is not acknowledged: 0 and 1, then 2 and 3.
        assert not (await client.ack(one, at, ack_set=(0b1100,), batch_size=4)).HasField("error")
        assert (await client.ack(two, at, ack_set=(0b1001,), batch_size=4)).error == pb.TransactionConflict
        assert not (await client.ack(two, at, ack_set=(0b0011,), batch_size=4)).HasField("error")
        await client.commit(one)
        await client.abort(two)
        await world.until(lambda: len(client.peer.messages) == 2, "again")
        assert list(client.peer.messages[1].ack_set or ()) == [0b1100]
        again = await client.begin()
        await client.add_subscription(again)
        assert not (await client.ack(again, at, ack_set=(0b0011,), batch_size=4)).HasField("error")
        await client.commit(again)
        assert (await world.topic()).subscriptions["s"].backlog_entries == 0

    in_world(story, ON)


def test_an_ack_that_names_no_transaction_of_the_subscription_is_refused() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0))
        await world.until(lambda: len(client.peer.messages) == 1, "a message")
        txn = await client.begin()
        answer = await client.ack(txn, client.peer.messages[0].position)
        assert answer.error == pb.NotAllowedError
        ack = pb.CommandAck(consumer_id=9, ack_type=pb.CommandAck.Individual, request_id=88)
        client.peer.send(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
        assert (await client.peer.answer(88)).error == pb.ConsumerNotFound

    in_world(story, ON)


def test_topics_that_store_nothing_and_readers_take_no_part() -> None:
    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        passing = "non-persistent://public/default/n"
        await client.peer.producer(topic=passing)
        txn = await client.begin()
        assert (await client.add_partitions(txn, passing)).HasField("error")
        client.send(txn, 0, b"a")
        await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        await client.peer.consumer(subscription="reader", durable=False, request_id=90)
        await client.add_subscription(txn, subscription="reader")
        answer = await client.ack(txn, (await world.topic()).log.last_position)
        assert answer.error == pb.NotAllowedError

    in_world(story, ON)
