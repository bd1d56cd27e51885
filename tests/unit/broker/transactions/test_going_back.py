"""What a decided transaction acknowledged counts, or goes back, in pieces: they share the loop's turns."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.broker.transactions import subscription_acks
from magnetar.broker.transactions.pending import PendingAcks
from magnetar.broker.transactions.subscription_acks import SubscriptionAcks
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import World, in_world, send
from support.transactions import ON, TxnPeer, opened

COUNT = 40
PIECE = 8


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_acks, "PIECE_MAX", PIECE)


class Held:
    """Pieces that wait for a turn, which comes when the test says so: in between anything may happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[SubscriptionAcks] = []
        monkeypatch.setattr(SubscriptionAcks, "_wait", lambda part: self.waiting.append(part))

    def piece(self) -> None:
        """One piece."""
        (part,) = self.waiting
        self.waiting.clear()
        part.go_on()


def again(client: TxnPeer, first: int = COUNT) -> list[Position]:
    """What came after the first messages."""
    return [message.position for message in client.peer.messages[first:]]


async def acknowledged(world: World, kind: str, count: int = COUNT) -> tuple[TxnPeer, Any, list[Position]]:
    """A client that acknowledged all its messages in a transaction."""
    client = await opened(world, kind=kind, permits=1_000, messages=count)
    places = [message.position for message in client.peer.messages]
    txn = await client.begin()
    await client.add_subscription(txn)
    assert not (await client.ack(txn, *places)).HasField("error")
    return client, txn, places


def test_a_turn_gives_a_piece_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # 6,000 batches and their holders were one piece of 20 to 44 ms.
    pieces: list[int] = []
    inner = PendingAcks.given_back

    def counted(self: PendingAcks, count_max: int) -> tuple[list[Position], bool]:
        found = inner(self, count_max)
        pieces.append(len(found[0]))
        return found

    monkeypatch.setattr(PendingAcks, "given_back", counted)

    async def story(world: World) -> None:
        client, txn, places = await acknowledged(world, "Shared")
        # Each piece takes all the time that a turn has for what was left over.
        clock = iter(range(1_000_000))
        monkeypatch.setattr(world.broker.turns, "now_ms", lambda: float(next(clock)), raising=False)
        turns: list[int] = []
        begin_turn = type(world.broker.turns).begin_turn

        def turned(self: Any) -> None:
            turns.append(len(pieces))
            begin_turn(self)

        monkeypatch.setattr(type(world.broker.turns), "begin_turn", turned)
        await client.abort(txn)
        await world.until(lambda: len(again(client)) == COUNT, "all of them again")
        assert again(client) == places
        assert pieces == [PIECE] * (COUNT // PIECE)
        assert set(range(1, len(pieces))) <= set(turns), "two pieces in a turn"

    in_world(story, ON)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared", "Exclusive", "Failover"])
def test_all_comes_again_in_order_and_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client, txn, places = await acknowledged(world, kind)
        subscription = (await world.topic()).subscriptions["s"]
        part = subscription.transactions
        assert part is not None
        turns = Held(monkeypatch)
        await client.abort(txn)
        for done in range(0, COUNT, PIECE):
            part.pending.check()
            shares = kind in ("Shared", "Key_Shared")
            await world.settle()
            assert len(again(client)) == (done if shares else 0)
            turns.piece()
        await world.settle()
        assert again(client) == places
        assert not part.pending
        assert subscription.backlog_entries == COUNT

    in_world(story, ON)


def test_meanwhile_another_transaction_takes_what_has_not_gone_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client, txn, places = await acknowledged(world, "Shared")
        part = (await world.topic()).subscriptions["s"].transactions
        assert part is not None
        other, third = await client.begin(), await client.begin()
        for each in (other, third):
            await client.add_subscription(each)
        turns = Held(monkeypatch)
        await client.abort(txn)
        turns.piece()
        # One that has gone back, and one that has not.
        taken = [places[0], places[-1]]
        assert not (await client.ack(other, *taken)).HasField("error")
        part.pending.check()
        for at in taken:
            assert (await client.ack(third, at)).error == pb.TransactionConflict
        while part.pending.goes_back:
            turns.piece()
            part.pending.check()
        await world.settle()
        assert sorted(again(client)) == places[:-1]
        await client.commit(other)
        assert (await world.topic()).subscriptions["s"].backlog_entries == COUNT - 2
        assert not part.pending

    in_world(story, ON)


def test_a_commit_of_what_was_taken_meanwhile_counts_before_it_would_have_gone_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        client, txn, places = await acknowledged(world, "Shared")
        subscription = (await world.topic()).subscriptions["s"]
        other = await client.begin()
        await client.add_subscription(other)
        turns = Held(monkeypatch)
        await client.abort(txn)
        assert not (await client.ack(other, *places[PIECE:])).HasField("error")
        await client.commit(other)
        while subscription.transactions is not None and subscription.transactions.pending.goes_back:
            turns.piece()
        await world.settle()
        assert again(client) == places[:PIECE]
        assert subscription.backlog_entries == PIECE

    in_world(story, ON)


def test_two_that_are_aborted_go_back_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client = await opened(world, kind="Exclusive", permits=1_000, messages=COUNT)
        places = [message.position for message in client.peer.messages]
        txns = [await client.begin(), await client.begin()]
        for number, txn in enumerate(txns):
            await client.add_subscription(txn)
            assert not (await client.ack(txn, *places[number::2])).HasField("error")
        turns = Held(monkeypatch)
        for txn in txns:
            await client.abort(txn)
        part = (await world.topic()).subscriptions["s"].transactions
        assert part is not None
        while part.pending.goes_back:
            turns.piece()
            part.pending.check()
        await world.settle()
        # All for each of the two, but for what was pending still: order forbids to send some again.
        assert again(client) == places[::2] + places

    in_world(story, ON)


@pytest.mark.parametrize("kind", ["Shared", "Exclusive"])
def test_a_commit_counts_in_pieces_and_is_durable_after_the_last(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        client, txn, places = await acknowledged(world, kind)
        topic = await world.topic()
        concerned = world.broker.transactions._resolving.of_topic
        subscription = topic.subscriptions["s"]
        other = await client.begin()
        await client.add_subscription(other)
        turns = Held(monkeypatch)
        await client.commit(txn)
        for done in range(0, COUNT, PIECE):
            assert subscription.backlog_entries == COUNT - done
            assert subscription.transactions is not None
            subscription.transactions.pending.check()
            # What does not count yet cannot be in another transaction, and its header stays.
            assert (await client.ack(other, places[-1])).error == pb.TransactionConflict
            await world.settle()
            assert txn in concerned.get(str(topic.name), {})
            turns.piece()
        await world.until(
            lambda: txn not in concerned.get(str(topic.name), {}),
            "the end",
        )
        assert subscription.backlog_entries == 0
        await world.settle()
        assert not again(client)

    in_world(story, ON)


def test_a_topic_that_is_unloaded_amid_a_commit_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client, txn, _ = await acknowledged(world, "Shared")
        name = (await world.topic()).name
        turns = Held(monkeypatch)
        await client.commit(txn)
        turns.piece()
        await world.broker.unload(name)
        while turns.waiting:
            turns.piece()
        # Its cursor is closed: the header still has all.
        monkeypatch.undo()
        world.clock.advance(2_000)
        world.broker.alarms.ring()
        topic = await world.topic()
        await world.until(lambda: topic.subscriptions["s"].backlog_entries == 0, "all of it")

    in_world(story, ON)


def test_a_deleted_subscription_gets_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client, txn, _ = await acknowledged(world, "Shared")
        topic = await world.topic()
        turns = Held(monkeypatch)
        await client.abort(txn)
        turns.piece()
        await world.broker.unload(topic.name)
        del topic
        turns.piece()
        assert not turns.waiting

    in_world(story, ON)


def test_what_was_sent_before_a_cumulative_acknowledgement_is_aborted_is_sent_again() -> None:
    async def story(world: World) -> None:
        client = await opened(world, messages=3)
        places = [message.position for message in client.peer.messages]
        txn = await client.begin()
        await client.add_subscription(txn)
        assert not (await client.ack(txn, places[1], cumulative=True)).HasField("error")
        await client.abort(txn)
        await world.until(lambda: again(client, 3) == places, "again")
        client.peer.send(send(1, 3))
        await world.until(lambda: len(again(client, 3)) == 4, "the next one, once")

    in_world(story, ON)
