"""Damaged values of transactions of several brokers: refused with what to do, and given up by an operator."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.transactions import part_waits, several
from magnetar.broker.transactions.coordinator import ANYBODY
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import header_path, part_path
from magnetar.metadata import keys
from magnetar.wire import pulsar_pb2 as pb
from support.seen import Type
from support.sessions import TOPIC, World, send
from support.transactions import TxnPeer, bodies, opened
from unit.broker.transactions.test_participants import next_broker
from unit.broker.transactions.test_several import in_cluster

LOG = TopicName.parse(TOPIC).log_name
DAMAGE = b'{"e":'


async def given_up(world: World, txn: TxnId) -> bool:
    """As the admin API does it."""
    transactions = world.broker.transactions
    await transactions.connect(txn.coordinator)
    found = await transactions.take_up(txn)
    await transactions.end(txn, TxnState.ABORTED, ANYBODY, reason="an operator aborted it")
    return found


async def begun(world: World) -> tuple[TxnId, Position]:
    """An open transaction with a message between two plain ones, and the acknowledgement of an older one."""
    client = await opened(world, messages=1)
    at = client.peer.messages[0].position
    txn = await client.begin()
    await client.add_partitions(txn)
    await client.add_subscription(txn)
    await client.publish(txn, 1, b"inside")
    assert not (await client.ack(txn, at)).HasField("error")
    client.peer.send(send(1, 2, b"after"))
    await world.until(lambda: len(client.peer.receipts) == 3, "receipts")
    return txn, at


async def consumed(world: World) -> TxnPeer:
    peer = world.peer()
    await peer.consumer(permits=100)
    return TxnPeer(peer)


async def comes_again(world: World, client: TxnPeer, txn: TxnId, at: Position) -> None:
    """What the transaction acknowledged, then what stood behind it; nothing of the transaction is left."""
    await world.until(lambda: len(bodies(client.peer)) == 2, "messages")
    assert client.peer.messages[0].position == at, "it comes again"
    assert bodies(client.peer)[1] == b"after"
    assert await world.store.get(part_path(LOG, txn)) is None


def test_a_damaged_header_holds_its_topics_back_until_it_is_given_up() -> None:
    async def story(world: World, _: object) -> None:
        txn, at = await begun(world)
        await world.store.put(header_path(txn), DAMAGE)
        await next_broker(world)
        client = await consumed(world)
        await world.settle()
        assert bodies(client.peer) == [], "what the transaction acknowledged is its, what is behind waits"
        answer = await client.end(txn, commit=True)
        assert answer.error == pb.TransactionNotFound
        assert header_path(txn) in answer.message
        assert f"magnetar transactions abort {txn.coordinator} {txn.sequence}" in answer.message
        assert await given_up(world, txn)
        await comes_again(world, client, txn, at)
        # For ever, and for a client that asks later.
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus
        assert not await world.broker.transactions.take_up(txn), "nothing is damaged any more"

    in_cluster(story)


def test_a_header_that_is_damaged_after_its_coordinator_was_read_is_told_by_its_path() -> None:
    """A former owner of the coordinator began it late, and its value is damaged before it is found."""

    async def story(world: World, _: object) -> None:
        client = await opened(world)
        known = await client.begin()
        late = TxnId(known.coordinator, known.sequence + 100)
        await world.store.put(header_path(late), DAMAGE)
        answer = await client.end(late, commit=True)
        assert answer.error == pb.TransactionNotFound
        assert header_path(late) in answer.message
        assert await given_up(world, late)
        await client.commit(known)

    in_cluster(story)


def test_a_restored_header_is_not_overwritten_by_giving_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, _: object) -> None:
        txn, _at = await begun(world)
        good = await world.store.get(header_path(txn))
        assert good is not None
        await world.store.put(header_path(txn), DAMAGE)
        await next_broker(world)
        await world.broker.transactions.connect(txn.coordinator)
        await world.store.put(header_path(txn), good.data)
        client = await consumed(world)
        with pytest.raises(several.CoordinatorNotFoundError):
            await given_up(world, txn)
        await client.commit(txn)
        await world.until(lambda: bodies(client.peer) == [b"inside", b"after"], "messages")

    in_cluster(story)


def test_a_transaction_without_a_header_is_given_up_by_its_parts() -> None:
    """Its value was lost with a damaged row of the store: nothing else would ever let its topics go."""

    async def story(world: World, _: object) -> None:
        txn, at = await begun(world)
        await world.store.delete(header_path(txn))
        await next_broker(world)
        client = await consumed(world)
        await world.settle()
        assert bodies(client.peer) == [], "whether it is committed is not known"
        (mirror,) = world.broker.transactions._resolving.of_topic[TOPIC].values()
        assert f"magnetar transactions abort {txn.coordinator} {txn.sequence}" in mirror.reason
        assert (await client.end(txn, commit=True)).error == pb.TransactionNotFound
        assert await given_up(world, txn)
        await comes_again(world, client, txn, at)
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus
        assert not await world.broker.transactions.take_up(txn), "nothing is damaged any more"

    in_cluster(story)


@pytest.mark.parametrize("committed", [False, True], ids=["open", "committed"])
def test_a_damaged_part_keeps_its_topic_from_being_loaded_until_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    monkeypatch.setattr(several, "_FOLLOWED_S", 0.0)
    monkeypatch.setattr(several, "_ROUND_S", 0.01)
    monkeypatch.setattr(part_waits, "_KNOCK_S", 0.01)

    async def story(world: World, _: object) -> None:
        txn, at = await begun(world)
        if committed:
            transactions = world.broker.transactions
            assert isinstance(transactions, several.SharedTransactions)

            def killed(*_: object) -> None:
                """Its broker ends before it does what was decided."""

            monkeypatch.setattr(transactions._resolving, "_tell", killed)
            await TxnPeer(world.peer()).commit(txn)
        path = part_path(LOG, txn)
        await next_broker(world)
        await world.store.put(path, DAMAGE)
        peer = world.peer()
        answer = await peer.ask(
            Type.SUBSCRIBE, request_id=1, topic=TOPIC, subscription="s", consumer_id=1, subType=0
        )
        assert path in answer.message
        assert f"magnetar transactions abort {txn.coordinator} {txn.sequence}" in answer.message
        if committed:
            await world.broker.transactions.connect(txn.coordinator)
            assert await world.broker.transactions.take_up(txn)
            with pytest.raises(several.TransactionStateError):
                await given_up(world, txn)
        else:
            assert await given_up(world, txn)
        client = await consumed(world)
        expected = [b"inside", b"after"] if committed else [b"after"]
        await world.until(lambda: bodies(client.peer)[1:] == expected, "messages")
        assert client.peer.messages[0].position == at, "what it acknowledged there comes again"
        copies = await world.store.children(keys.damaged_parts(LOG))
        copy = await world.store.get(f"{keys.damaged_parts(LOG)}/{copies[0]}")
        assert copy is not None
        assert copy.data == DAMAGE
        assert (await client.end(txn, commit=not committed)).error == pb.InvalidTxnStatus
        of = world.broker.transactions.coordinators[txn.coordinator].transactions

        def is_over() -> bool:
            # The topic looks again once it is in use.
            world.clock.advance(10)
            world.broker.alarms.ring()
            return txn.sequence not in of or not of[txn.sequence].unresolved

        await world.until(is_over, "its end")

    in_cluster(story)
