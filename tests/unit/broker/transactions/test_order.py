"""What must be durable before what: each rule with the write that it waits for held back, or lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import TransactionNotFoundError
from magnetar.broker.service import Broker
from magnetar.broker.transactions.coordinator import Who
from magnetar.broker.transactions.ids import TxnState
from magnetar.metadata.keys import TRANSACTION_LOG, transaction_headers
from magnetar.metadata.store import OutcomeUnknownError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun
from support.seen import Type
from support.sessions import TOPIC, World, in_world, send
from support.transactions import ON, bodies, opened, restarted


class Held:
    """Header writes that wait until they are let go, or fail."""

    def __init__(self, world: World) -> None:
        self._kept = world.broker.transactions._kept
        self._write = self._kept.write
        self._gate = asyncio.Event()
        self._gate.set()
        self.fails = 0
        """How many of the next writes take effect and are answered by an error."""
        self._kept.write = self.write  # type: ignore[method-assign]  # in between

    def hold(self) -> None:
        self._gate.clear()

    def go(self) -> None:
        self._gate.set()

    async def write(self, txn: Any, header: bytes) -> Any:
        await self._gate.wait()
        stat = await self._write(txn, header)
        if self.fails:
            self.fails -= 1
            raise OutcomeUnknownError("the connection was lost")
        return stat


def test_a_topic_takes_messages_once_it_stands_in_the_durable_header() -> None:
    async def story(world: World) -> None:
        client, held = await opened(world), Held(world)
        txn = await client.begin()
        held.hold()
        adding = asyncio.ensure_future(client.add_partitions(txn))
        await world.settle()
        assert not adding.done()
        client.send(txn, 0, b"too early")
        await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        held.go()
        assert not (await adding).HasField("error")
        await client.publish(txn, 1, b"in time")

    in_world(story, ON)


def test_an_acknowledgement_is_answered_once_it_is_durable() -> None:
    async def story(world: World) -> None:
        client, held = await opened(world), Held(world)
        client.peer.send(send(1, 0))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_subscription(txn)
        held.hold()
        acking = asyncio.ensure_future(client.ack(txn, client.peer.messages[0].position))
        await world.settle()
        assert not acking.done()
        held.go()
        assert not (await acking).HasField("error")

    in_world(story, ON)


def test_an_acknowledgement_that_cannot_be_stored_ends_its_transaction() -> None:
    async def story(world: World) -> None:
        client, held = await opened(world, kind="Shared"), Held(world)
        client.peer.send(send(1, 0))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_subscription(txn)
        held.fails = 1
        answer = await client.ack(txn, client.peer.messages[0].position)
        assert answer.HasField("error")
        await world.until(lambda: len(client.peer.messages) == 2, "the message again")
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus

    in_world(story, ON)


def test_nothing_is_seen_or_taken_before_the_decision_is_durable() -> None:
    async def story(world: World) -> None:
        client, held = await opened(world), Held(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        held.hold()
        ending = asyncio.ensure_future(client.end(txn, commit=True))
        await world.settle()
        assert not ending.done()
        assert bodies(client.peer) == []
        client.send(txn, 1, b"late")
        await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        # No client is told how it ends before that is durable: a crash may still change it.
        other = asyncio.ensure_future(client.end(txn, commit=False))
        await world.settle()
        assert not other.done()
        held.go()
        assert not (await ending).HasField("error")
        assert (await other).error == pb.InvalidTxnStatus
        await world.until(lambda: bodies(client.peer) == [b"a"], "the message")

    in_world(story, ON)


def test_a_commit_waits_for_the_messages_that_are_under_way() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        world.ledgers.auto_sync = False
        client.send(txn, 0, b"a")
        ending = asyncio.ensure_future(client.end(txn, commit=True))
        await world.settle()
        assert not ending.done()
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        assert not (await ending).HasField("error")
        await world.until(lambda: bodies(client.peer) == [b"a"], "the message")

    in_world(story, ON)


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_whose_outcome_is_unknown_is_looked_up(commit: bool) -> None:
    async def story(world: World) -> None:
        client, held = await opened(world), Held(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        held.fails = 1
        # The client is to repeat it, which it does on this code.
        assert (await client.end(txn, commit=commit)).error == pb.TransactionCoordinatorNotFound
        assert not (await client.end(txn, commit=commit)).HasField("error")
        assert (await client.end(txn, commit=not commit)).error == pb.InvalidTxnStatus
        client.peer.send(send(1, 1, b"plain"))
        expected = [b"a", b"plain"] if commit else [b"plain"]
        await world.until(lambda: bodies(client.peer) == expected, "messages")

    in_world(story, ON)


def test_an_end_that_failed_is_tried_until_it_is_done() -> None:
    async def story(world: World) -> None:
        client, held = await opened(world), Held(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        held.fails = 1
        await client.end(txn, commit=True)
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        await world.until(lambda: bodies(client.peer) == [b"a"], "the message")

    in_world(story, ON)


def test_headers_that_are_gone_already_do_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # The write that made them outcomes took effect, and an error was its answer: it was repeated in vain.
    async def story(world: World) -> None:
        client, transact = await opened(world), world.store.transact

        async def answered_by_an_error(operations: Any) -> Any:
            stats = await transact(operations)
            if not any(each.path.startswith(TRANSACTION_LOG) for each in operations):
                return stats
            monkeypatch.setattr(world.store, "transact", transact)
            raise OutcomeUnknownError("the connection was lost")

        for _ in range(2):
            txn = await client.begin()
            await client.commit(txn)
        monkeypatch.setattr(world.store, "transact", answered_by_an_error)
        for _ in range(3):
            world.clock.advance(2_000)
            world.broker.alarms.ring()
            await world.settle()
        assert world.store.transact == transact
        assert not world.broker.transactions.coordinators[0].transactions
        assert not (await client.end(txn, commit=True)).HasField("error")

    in_world(story, ON)


def test_somebody_elses_transaction_is_not_known() -> None:
    async def story(world: World) -> None:
        transactions = world.broker.transactions
        topic = await world.topic()
        txn = await transactions.begin(0, "alice", 60_000)
        alice, bob, root = Who("alice"), Who("bob"), Who("root", superuser=True)
        names = [(TOPIC, TopicName.parse(TOPIC))]
        with pytest.raises(TransactionNotFoundError):
            await transactions.add_partitions(txn, names, bob)
        with pytest.raises(TransactionNotFoundError):
            await transactions.add_subscriptions(txn, [(*names[0], "s")], bob)
        with pytest.raises(TransactionNotFoundError):
            await transactions.end(txn, TxnState.COMMITTED, bob)
        await transactions.add_partitions(txn, names, alice)
        run = SendRun(1)
        run.txn = txn
        run.add(1, 1, None, b"", good=True)
        assert transactions.admit(topic, "p", run, bob) is not None
        assert transactions.admit(topic, "p", run, alice) is None
        await transactions.end(txn, TxnState.ABORTED, root)

    in_world(story, ON)


def test_time_goes_on_over_a_restart() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        soon, back = await client.begin(ttl_ms=10_000), await client.begin(ttl_ms=10_000)
        world.clock.advance(6_000)
        await restarted(world)
        coordinator = world.broker.transactions.coordinators[0]
        left_ms = coordinator.transactions[soon.sequence].deadline_ms - world.clock.monotonic_ms()
        assert left_ms == 4_000
        # Numbers are not given out again.
        assert coordinator.next_sequence > back.sequence
        world.clock.advance(4_000)
        world.broker.alarms.ring()
        await world.until(lambda: not list(coordinator.open_ones()), "both are aborted")

    in_world(story, ON)


def test_a_clock_that_was_set_back_lengthens_no_transactions_life() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin(ttl_ms=10_000)
        await world.broker.drain()
        await world.broker.close()
        world.clock.step(-3_600_000)
        world.broker = Broker(config=ON, store=world.store, logs=world.logs, clock=world.clock)
        await world.start()
        coordinator = world.broker.transactions.coordinators[0]
        left_ms = coordinator.transactions[txn.sequence].deadline_ms - world.clock.monotonic_ms()
        assert left_ms == 10_000

    in_world(story, ON)


def test_a_deleted_subscription_ends_what_is_open_in_it() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, client.peer.messages[0].position)
        await (await world.topic()).delete_subscription("s", force=True)
        assert (await client.end(txn, commit=True)).error == pb.InvalidTxnStatus

    in_world(story, ON)


def test_hidden_entries_are_forgotten_with_their_topic() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 5, b"first"))
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        await client.abort(txn)
        await world.settle()
        name = (await world.topic()).name
        assert await world.broker.transactions._kept.hidden(name.log_name)
        await world.broker.delete_topic(name, force=True)
        assert not await world.broker.transactions._kept.hidden(name.log_name)

    in_world(story, ON)


def test_a_damaged_header_keeps_nobody_from_starting() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn, other = await client.begin(), await client.begin()
        path = f"{transaction_headers(0)}/{txn.sequence}"
        await world.store.put(path, b'{"s": "OPE')
        await restarted(world)
        coordinator = world.broker.transactions.coordinators[0]
        assert list(coordinator.transactions) == [other.sequence]
        assert list(coordinator.unknown) == [txn.sequence]
        assert coordinator.next_sequence > other.sequence

    in_world(story, ON)
