"""What is kept of transactions: a process that was killed left enough for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.ledgers import write_error
from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.errors import TransactionStateError
from magnetar.broker.service import Broker
from magnetar.broker.transactions.coordinator import ANYBODY, Coordinator
from magnetar.broker.transactions.header_log import OVER, HeaderLine, encode
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.kept_log import LoggedTransactions, records_of
from magnetar.broker.transactions.outcomes import PAGE
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.config import ManagedLogConfig, Retention
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata import keys
from magnetar.metadata.keys import transaction_headers
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import (
    OPERATIONS_MAX,
    BadVersionError,
    Operation,
    OutcomeUnknownError,
    Stat,
    Value,
)
from magnetar.runtime.tasks import TaskGroup
from magnetar.wire import pulsar_pb2 as pb
from support.seen import Type
from support.sessions import Peer, World, in_world, send
from support.transactions import ON, TxnPeer, bodies, headers_in, opened


async def ring(world: World, ms: int = 2_000) -> None:
    await world.settle()
    world.clock.advance(ms)
    world.broker.alarms.ring()
    await world.settle()


async def killed(world: World) -> None:
    """The process is gone, with what its alarms would have done; another one starts on what it left."""
    await world.settle()
    world.broker.alarms.close()
    await world.broker.tasks.close()
    await world.tasks.close()
    world.ledgers, world.tasks = world.ledgers.crash(), TaskGroup("logs")
    world.logs = ManagedLogs(
        store=world.store,
        ledgers=world.ledgers,
        clock=world.clock,
        config=ManagedLogConfig(rollover_ms_min=0, cursor_flush_ms=0),
        spawn=world.tasks.spawn,
    )
    world.broker = Broker(config=ON, store=world.store, logs=world.logs, clock=world.clock)
    await world.start()


async def headers(world: World) -> list[str]:
    return [str(txn_id.sequence) for txn_id in await headers_in(world.store)]


def test_numbers_are_given_out_once() -> None:
    async def story(world: World) -> None:
        seen = set()
        for _ in range(3):
            client = await opened(world)
            seen.add(await client.begin())
            over = await client.begin()
            seen.add(over)
            await client.abort(over)
            await ring(world)
            for txn in list(world.broker.transactions.coordinators[0].open_ones()):
                await client.abort(txn.id)
            await ring(world)
            assert await headers(world) == []
            await killed(world)
        assert len(seen) == 6

    in_world(story, ON)


def test_who_was_replaced_decides_nothing() -> None:
    # A coordinator that was stopped, replaced, and goes on.
    async def story(world: World) -> None:
        old = world.broker.transactions
        txn = await old.begin(0, "", 60_000)
        second = Broker(config=ON, store=world.store, logs=world.logs, clock=world.clock)
        await second.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        await second.transactions.end(txn, TxnState.COMMITTED, ANYBODY)
        with pytest.raises(BadVersionError):
            await old.end(txn, TxnState.ABORTED, ANYBODY)
        # By now it has asked.
        with pytest.raises(TransactionStateError):
            await old.end(txn, TxnState.ABORTED, ANYBODY)
        await old.end(txn, TxnState.COMMITTED, ANYBODY)
        await second.transactions.end(txn, TxnState.COMMITTED, ANYBODY)
        await second.close()

    in_world(story, ON)


def test_a_commit_fails_where_a_message_never_became_durable() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"durable")
        world.ledgers.auto_sync = False
        client.send(txn, 1, b"lost")
        ending = asyncio.ensure_future(client.end(txn, commit=True))
        await world.settle()
        topic = await world.topic()
        world.ledgers.writer(topic.log.last_position.ledger_id).fail(write_error())
        assert (await ending).error == pb.InvalidTxnStatus
        world.ledgers.auto_sync = True
        await killed(world)
        again = await opened(world)
        again.peer.send(send(1, 2, b"plain"))
        await world.until(lambda: bodies(again.peer) == [b"plain"], "the plain message alone")

    in_world(story, ON)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_known_after_a_kill(commit: bool) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0, b"first"))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.add_subscription(txn)
        await client.publish(txn, 1, b"in it")
        await client.ack(txn, client.peer.messages[0].position)
        await client.end(txn, commit=commit)
        await ring(world)
        assert await headers(world) == []
        await killed(world)
        again = await opened(world)
        await world.settle()
        assert bodies(again.peer) == ([b"in it"] if commit else [b"first"])
        assert not (await again.end(txn, commit=commit)).HasField("error")
        assert (await again.end(txn, commit=not commit)).error == pb.InvalidTxnStatus

    in_world(story, ON)


def test_what_was_decided_before_a_kill_is_followed_after_it() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 5, b"first"))
        lost, kept = await client.begin(), await client.begin()
        for number, txn in enumerate((lost, kept)):
            await client.add_partitions(txn)
            await client.publish(txn, number, b"%d" % number)
        await client.abort(lost)
        await client.commit(kept)
        assert len(await headers(world)) == 2
        await killed(world)
        await ring(world)
        assert await headers(world) == []
        again = await opened(world)
        await world.until(lambda: bodies(again.peer) == [b"first", b"1"], "what is committed")
        assert not world.broker.transactions.coordinators[0].transactions

    in_world(story, ON)


def test_an_open_one_ends_by_its_time_after_a_kill() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin(ttl_ms=5_000)
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"in it")
        await killed(world)
        again = await opened(world)
        again.peer.send(send(1, 1, b"plain"))
        await ring(world, 6_000)
        await world.until(lambda: bodies(again.peer) == [b"plain"], "the plain message")
        assert (await again.end(txn, commit=True)).error == pb.InvalidTxnStatus

    in_world(story, ON)


@pytest.mark.parametrize("commit", [True, False])
def test_the_header_goes_once_the_topic_has_made_all_durable(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0, b"first"))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.add_subscription(txn)
        await client.publish(txn, 1, b"in it")
        await client.ack(txn, client.peer.messages[0].position)
        gate = asyncio.Event()
        flush, hide = Cursor.flush, KeptTransactions.hide

        async def flush_later(cursor: Cursor) -> None:
            await gate.wait()
            await flush(cursor)

        async def hide_later(kept: KeptTransactions, *arguments: Any) -> None:
            await gate.wait()
            await hide(kept, *arguments)

        monkeypatch.setattr(Cursor, "flush", flush_later)
        monkeypatch.setattr(KeptTransactions, "hide", hide_later)
        await client.end(txn, commit=commit)
        await ring(world)
        assert await headers(world) == [str(txn.sequence)]
        gate.set()
        await ring(world)
        await ring(world)
        assert await headers(world) == []

    in_world(story, ON)


def test_hidden_entries_that_could_not_be_stored_are_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"aborted")
        hide = KeptTransactions.hide

        async def fails(kept: KeptTransactions, *arguments: Any) -> None:
            monkeypatch.setattr(KeptTransactions, "hide", hide)
            raise MetadataError("not now")

        monkeypatch.setattr(KeptTransactions, "hide", fails)
        await client.abort(txn)
        for _ in range(3):
            await ring(world)
        assert await headers(world) == []
        await killed(world)
        again = await opened(world)
        again.peer.send(send(1, 1, b"plain"))
        await world.until(lambda: bodies(again.peer) == [b"plain"], "the plain message alone")

    in_world(story, ON)


async def aborted_tail(world: World) -> tuple[TxnPeer, Position]:
    """A topic with a plain message, and aborted ones behind it; where the last of those lies."""
    client = await opened(world)
    client.peer.send(send(1, 9, b"plain"))
    txn = await client.begin()
    await client.add_partitions(txn)
    for number in range(3):
        last = await client.publish(txn, number, b"aborted")
    await client.abort(txn)
    await world.until(lambda: client.peer.messages, "the plain message")
    return client, last


def test_a_new_subscription_passes_over_hidden_entries() -> None:
    async def story(world: World) -> None:
        await aborted_tail(world)
        peer = world.peer()
        await peer.consumer(5, request_id=50, subscription="new", permits=10)
        await world.until(lambda: peer.messages, "the plain message")
        peer.ack(5, peer.messages[0].position)
        subscription = (await world.topic()).subscriptions["new"]
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")

    in_world(story, ON)


def test_a_seek_passes_over_hidden_entries() -> None:
    async def story(world: World) -> None:
        client, _ = await aborted_tail(world)
        at = client.peer.messages[0].position
        await client.peer.ask(Type.SEEK, consumer_id=1, request_id=31, message_publish_time=1)
        subscription = (await world.topic()).subscriptions["s"]
        await client.peer.consumer(request_id=32, permits=10)
        await world.until(lambda: len(client.peer.messages) == 2, "the message again")
        client.peer.ack(1, at)
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")

    in_world(story, ON)


def test_a_recovered_subscription_passes_over_hidden_entries() -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0, b"plain"))
        client.peer.send(send(1, 1, b"aborted"))
        await world.until(lambda: len(client.peer.receipts) == 2, "receipts")
        topic = await world.topic()
        ledger_id, entry_id = topic.log.last_position
        # As after a crash between the two: the entry is hidden, and the cursor was not stored behind it.
        hidden = EntrySet()
        hidden.add(entry_id)
        await KeptTransactions(world.store).hide(topic.log.name, {ledger_id: hidden})
        await killed(world)
        peer = world.peer()
        await peer.consumer(5, request_id=50, permits=10)
        await world.until(lambda: peer.messages, "the plain message")
        peer.ack(5, peer.messages[0].position)
        subscription = (await world.topic()).subscriptions["s"]
        await world.until(lambda: subscription.backlog_entries == 0, "no backlog")
        assert bodies(peer, 5) == [b"plain"]

    in_world(story, ON)


def test_hidden_entries_go_with_their_ledger() -> None:
    async def story(world: World) -> None:
        client, last = await aborted_tail(world)
        await world.settle()
        topic = await world.topic()
        kept = world.broker.transactions._kept
        assert list(await kept.hidden(topic.log.name)) == [last.ledger_id]
        client.peer.ack(1, client.peer.messages[0].position)
        await world.settle()
        await world.broker.unload(topic.name)
        topic = await world.topic()
        topic.log.retention = Retention(0, 0)
        await world.broker.maintain()
        assert topic.log.first_position.ledger_id > last.ledger_id
        assert not await kept.hidden(topic.log.name)

    in_world(story, ON)


def test_a_seek_waits_for_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client = await opened(world)
        client.peer.send(send(1, 0, b"first"))
        await world.until(lambda: client.peer.messages, "a message")
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, client.peer.messages[0].position)
        gate, flush = asyncio.Event(), Cursor.flush

        async def flush_later(cursor: Cursor) -> None:
            await gate.wait()
            await flush(cursor)

        monkeypatch.setattr(Cursor, "flush", flush_later)
        await client.commit(txn)
        seeking = asyncio.ensure_future(
            client.peer.ask(Type.SEEK, consumer_id=1, request_id=31, message_publish_time=1)
        )
        await world.settle()
        # Else a crash now would bring the commit back after the seek.
        assert not seeking.done()
        gate.set()
        assert not isinstance(await seeking, pb.CommandError)

    in_world(story, ON)


# -- a seek after a commit ------------------------------------------------------------------------------


async def committed_ack(world: World) -> TxnPeer:
    """A client whose only message a transaction acknowledged. It is committed and its acknowledgement
    durable; its header is there still."""
    client = await opened(world)
    client.peer.send(send(1, 0, b"first"))
    await world.until(lambda: client.peer.messages, "a message")
    txn = await client.begin()
    await client.add_subscription(txn)
    await client.ack(txn, client.peer.messages[0].position)
    await client.commit(txn)
    await world.settle()
    assert not world.broker.transactions.coordinators[0].transactions[txn.sequence].unresolved
    assert await headers(world) == [str(txn.sequence)]
    return client


async def seek_to_the_first(peer: Peer) -> None:
    answer = await peer.ask(Type.SEEK, consumer_id=1, request_id=31, message_publish_time=1)
    assert not isinstance(answer, pb.CommandError)


async def gets_the_first(world: World) -> None:
    peer = world.peer()
    await peer.consumer(8, request_id=80, permits=10)
    await world.until(lambda: bodies(peer, 8) == [b"first"], "the message that the seek brought back")


def test_a_commit_does_not_come_back_after_a_seek_and_a_kill() -> None:
    async def story(world: World) -> None:
        client = await committed_ack(world)
        await seek_to_the_first(client.peer)
        await killed(world)
        await ring(world)
        assert not await headers(world)
        await gets_the_first(world)

    in_world(story, ON)


def test_nor_where_the_topic_was_loaded_anew_before_the_seek() -> None:
    async def story(world: World) -> None:
        await committed_ack(world)
        await world.broker.unload((await world.topic()).name)
        peer = world.peer()
        await peer.consumer(1, request_id=81, permits=10)
        await seek_to_the_first(peer)
        await killed(world)
        await ring(world)
        await gets_the_first(world)

    in_world(story, ON)


def test_nor_into_a_subscription_that_is_made_anew() -> None:
    async def story(world: World) -> None:
        await committed_ack(world)
        topic = await world.topic()
        await topic.delete_subscription("s", force=True)
        await topic.subscription("s", initial_earliest=True, start=None, properties=None)
        await killed(world)
        await ring(world)
        await gets_the_first(world)

    in_world(story, ON)


def test_a_seek_whose_strike_got_no_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client = await committed_ack(world)
        write = LoggedTransactions.write
        lost: list[TxnId] = []

        async def unanswered(kept: LoggedTransactions, txn: Transaction, header: bytes) -> int:
            version = await write(kept, txn, header)
            if not lost:
                lost.append(txn.id)
                raise OutcomeUnknownError("no answer")
            return version

        monkeypatch.setattr(LoggedTransactions, "write", unanswered)
        subscription = (await world.topic()).subscriptions["s"]
        with pytest.raises(OutcomeUnknownError):
            await subscription.seek_time(1)
        assert subscription.backlog_entries == 0
        await seek_to_the_first(client.peer)
        await killed(world)
        await ring(world)
        await gets_the_first(world)

    in_world(story, ON)


def test_a_seek_after_the_header_went_writes_none() -> None:
    async def story(world: World) -> None:
        client = await committed_ack(world)
        over = [HeaderLine(txn_id, OVER) for txn_id in await headers_in(world.store)]
        number = max([each async for each, _ in records_of(world.store)]) + 1
        # As by a sweep that has not told of it yet.
        await world.store.put(f"{keys.TRANSACTION_LOG}/{number}", encode(over))
        await seek_to_the_first(client.peer)
        assert not await headers(world)

    in_world(story, ON)


# -- hidden entries, and several that write them -------------------------------------------------------

LOG = "public/default/persistent/t"


def entries(*ids: int) -> EntrySet:
    made = EntrySet()
    for id_ in ids:
        made.add(id_)
    return made


def in_ledgers(sets: dict[int, EntrySet]) -> dict[LedgerId, EntrySet]:
    return {LedgerId(number): each for number, each in sets.items()}


async def hidden_in(store: MemoryMetadataStore) -> dict[int, list[int]]:
    """Entries below 5,000 by ledger."""
    found = await KeptTransactions(store).hidden(LOG)
    return {ledger_id: [id_ for id_ in range(5_000) if id_ in each] for ledger_id, each in found.items()}


def test_nobody_overwrites_what_another_process_hid() -> None:
    # A broker that was replaced, and goes on.
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        old, new = KeptTransactions(store), KeptTransactions(store)
        await old.hide(LOG, in_ledgers({1: entries(3)}))
        await new.hide(LOG, in_ledgers({1: entries(0, 2_000), 2: entries(7)}))
        assert await hidden_in(store) == {1: [0, 3, 2_000], 2: [7]}
        await old.hide(LOG, in_ledgers({1: entries(3, 4), 2: entries(8)}))
        assert await hidden_in(store) == {1: [0, 3, 4, 2_000], 2: [7, 8]}
        await new.forget_hidden(LOG, [LedgerId(2)])
        await old.hide(LOG, in_ledgers({2: entries(9)}))
        assert await hidden_in(store) == {1: [0, 3, 4, 2_000], 2: [9]}
        await new.forget_topic(LOG)
        await old.hide(LOG, in_ledgers({1: entries(5)}))
        assert await hidden_in(store) == {1: [5]}

    asyncio.run(story())


def test_more_ledgers_than_a_transaction_of_the_store_takes_are_hidden() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await KeptTransactions(store).hide(
            LOG, in_ledgers({id_: entries(id_) for id_ in range(OPERATIONS_MAX + 1)})
        )
        assert await hidden_in(store) == {id_: [id_] for id_ in range(OPERATIONS_MAX + 1)}

    asyncio.run(story())


def test_more_outcomes_than_a_transaction_of_the_store_takes_replace_their_headers() -> None:
    # Each is in a page of its own: the page is durable before the header goes.
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        kept, coordinator = KeptTransactions(store), Coordinator(0, open_max=1)
        ended = []
        for number in range(OPERATIONS_MAX):
            txn = Transaction(TxnId(0, number * PAGE), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
            txn.state = TxnState.COMMITTED
            await kept.write(txn, b"header")
            ended.append(txn)
        await kept.end(coordinator, ended, coordinator.ended(ended), again=False)
        assert await store.children(transaction_headers(0)) == []
        assert len(await store.children(keys.transaction_outcomes(0))) == OPERATIONS_MAX

    asyncio.run(story())


def test_hidden_entries_whose_writing_ended_unknown_are_written_again() -> None:
    class Unknown(MemoryMetadataStore):
        lost = 0

        async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
            stats = await super().transact(operations)
            if self.lost:
                self.lost -= 1
                raise OutcomeUnknownError("the connection was lost")
            return stats

    async def story() -> None:
        store = Unknown(ManualClock())
        kept, hidden = KeptTransactions(store), entries(1)
        await kept.hide(LOG, in_ledgers({1: hidden}))
        store.lost = 1
        hidden.add(2)
        with pytest.raises(OutcomeUnknownError):
            await kept.hide(LOG, in_ledgers({1: hidden}))
        hidden.add(3)
        await kept.hide(LOG, in_ledgers({1: hidden}))
        assert await hidden_in(store) == {1: [1, 2, 3]}

    asyncio.run(story())


def test_a_value_that_is_there_and_cannot_be_read_is_not_tried_for_ever() -> None:
    class Hiding(MemoryMetadataStore):
        async def get(self, path: str) -> Value | None:
            return None

    async def story() -> None:
        store = Hiding(ManualClock())
        await store.put(f"{keys.hidden_entries(LOG)}/1", b"")
        with pytest.raises(BadVersionError):
            await KeptTransactions(store).hide(LOG, in_ledgers({1: entries(1)}))

    asyncio.run(story())


def test_one_process_hides_without_a_read() -> None:
    class Counting(MemoryMetadataStore):
        reads = 0

        async def get(self, path: str) -> Value | None:
            self.reads += 1
            return await super().get(path)

    async def story() -> None:
        store = Counting(ManualClock())
        kept, hidden = KeptTransactions(store), entries()
        for id_ in range(5):
            hidden.add(id_)
            await kept.hide(LOG, in_ledgers({1: hidden, 2 + id_: entries(id_)}))
        assert store.reads == 0
        kept = KeptTransactions(store)
        assert len(await kept.hidden(LOG)) == 6
        await kept.hide(LOG, in_ledgers({1: hidden}))
        assert store.reads == 6

    asyncio.run(story())
