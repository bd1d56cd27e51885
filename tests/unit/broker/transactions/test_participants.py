"""Topics of one of several brokers in transactions, when brokers change and values were written meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.ledgers import write_error
from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import NamespaceNotFoundError, NotAllowedError
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.service import Broker
from magnetar.broker.session.ack_receipts import WAITING_MAX
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions import part_waits, part_writing, participants, several
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import header_path, part_path
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.metadata.store import SessionEvent, StoreUnreachableError, Value
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.commands import message_id_data
from magnetar.wire.frames import encode_command
from support.only_owner import OnlyOwner, share
from support.seen import Type
from support.sessions import TOPIC, World, send
from support.transactions import ON, TxnPeer, bodies, opened
from unit.broker.transactions.test_several import in_cluster

LOG = TopicName.parse(TOPIC).log_name


async def next_broker(world: World) -> None:
    """The broker ends, and another one of its cluster has everything."""
    transactions = world.broker.transactions
    assert isinstance(transactions, several.SharedTransactions)
    owners: object = world.broker.owners
    assert isinstance(owners, OnlyOwner)
    for number in list(transactions.coordinators):
        transactions._give_up(number)
    owners.away.add(TOPIC)
    await world.broker.unload(TopicName.parse(TOPIC))
    await world.broker.close()
    world.store._watches.clear()
    world.broker = Broker(config=ON, store=world.store, logs=world.logs, clock=world.clock)
    share(world.broker)
    await world.start()


def test_a_new_owner_of_a_terminated_topic_claims_its_parts() -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=1)
        txn = await client.begin()
        await client.add_subscription(txn)
        at = client.peer.messages[0].position
        await (await world.topic()).terminate()
        assert not (await client.ack(txn, at)).HasField("error")
        for _ in range(2):
            await next_broker(world)
            await world.topic()
        await TxnPeer(world.peer()).commit(txn)
        assert (await world.topic()).subscriptions["s"].cursor.is_acked(at)

    in_cluster(story)


def test_what_a_former_owner_answered_while_a_part_was_claimed_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = KeptParts.parts

    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=2)
        first, second = (each.position for each in client.peer.messages)
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, first)
        early = await world.store.get(part_path(LOG, txn))
        await client.ack(txn, second)

        async def read_before(self: KeptParts, log_name: str) -> AsyncIterator[tuple[TxnId, Value]]:
            """The new owner reads the part, then the former one changes it."""
            async for id_, _ in parts(self, log_name):
                assert early is not None
                yield id_, early

        monkeypatch.setattr(KeptParts, "parts", read_before)
        await next_broker(world)
        await world.topic()
        await TxnPeer(world.peer()).commit(txn)
        cursor = (await world.topic()).subscriptions["s"].cursor
        assert cursor.is_acked(first)
        assert cursor.is_acked(second), "it was answered"

    in_cluster(story)


def test_an_aborted_header_names_topics_with_acknowledgements_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "_FOLLOWED_S", 0.0)
    monkeypatch.setattr(part_waits, "_KNOCK_S", 0.01)

    async def story(world: World, _: object) -> None:
        async def killed(mirror: object) -> None:
            raise StoreUnreachableError("the broker is killed before it lets its part go")

        client = await opened(world, messages=1)
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, client.peer.messages[0].position)
        transactions = world.broker.transactions
        assert isinstance(transactions, several.SharedTransactions)
        monkeypatch.setattr(transactions._resolving._parts, "delete", killed)
        await client.abort(txn)
        await next_broker(world)
        await world.broker.transactions.connect(0)
        found = world.broker.transactions.coordinators[0].transactions[txn.sequence]
        assert found.unresolved == {TOPIC}, "its header would go before the part of this topic"
        # No client uses the topic: the coordinator has it loaded, and what was acknowledged comes again.
        await world.until(lambda: not found.unresolved, "the end of the part")
        assert await world.store.get(part_path(LOG, txn)) is None

    in_cluster(story)


def test_a_topic_of_the_same_name_is_not_held_back_by_a_part_of_an_earlier_one() -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        path = part_path(LOG, txn)
        part = await world.store.get(path)
        assert part is not None
        document = json.loads(part.data) | {"e": 1_000, "o": "a former broker"}
        await world.broker.delete_topic(TopicName.parse(TOPIC), force=True)
        # The broker was killed after it had deleted the log.
        await world.store.put(path, json.dumps(document).encode())
        await next_broker(world)
        client = await opened(world)
        assert await world.store.get(path) is None

    in_cluster(story)


def test_a_topic_that_was_added_for_acknowledgements_takes_messages_once_added_for_them() -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=1)
        txn = await client.begin()
        await client.add_subscription(txn)
        await client.ack(txn, client.peer.messages[0].position)
        await next_broker(world)
        client = await opened(world)
        await client.add_partitions(txn)
        await client.publish(txn, 5, b"a")
        await client.commit(txn)
        await world.until(lambda: b"a" in bodies(client.peer), "message")

    in_cluster(story)


def test_a_broker_of_a_cluster_without_transactions_hides_what_a_standalone_server_aborted() -> None:
    async def story() -> None:
        world = World(ON)
        await world.start()
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"aborted")
        other = await client.begin()
        await client.abort(txn)
        alone = world.broker
        with pytest.raises(NotAllowedError, match="have not ended"):
            await clustered(world)
        world.broker = alone
        await client.abort(other)
        await world.settle()
        world.clock.advance(2_000)
        alone.alarms.ring()
        await world.until(lambda: not alone.transactions.coordinators[0].transactions, "outcomes")
        await world.broker.unload(TopicName.parse(TOPIC))
        await world.broker.close()
        await clustered(world)
        client = await opened(world)
        client.peer.send(send(1, 1, b"plain"))
        # Not "s": its cursor is behind the aborted message already.
        await client.peer.consumer(2, request_id=9, subscription="later", permits=10)
        await world.until(lambda: bodies(client.peer, 2), "message")
        assert bodies(client.peer, 2) == [b"plain"]
        await world.close()

    async def clustered(world: World) -> None:
        world.broker = Broker(config=BrokerConfig(), store=world.store, logs=world.logs, clock=world.clock)
        share(world.broker)
        await world.start()

    asyncio.run(story())


def test_topics_that_store_nothing_take_no_part() -> None:
    async def story(world: World, _: object) -> None:
        client = TxnPeer(world.peer())
        txn = await client.begin()
        passing = "non-persistent://public/default/n"
        assert (await client.add_partitions(txn, passing)).error == pb.NotAllowedError
        assert (await client.add_subscription(txn, passing)).error == pb.NotAllowedError
        await client.commit(txn)

    in_cluster(story)


def test_a_commit_that_a_topic_does_not_answer_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "_FOLLOWED_S", 0.0)
    monkeypatch.setattr(part_waits, "_KNOCK_S", 0.01)

    async def story(world: World, owners: OnlyOwner) -> None:
        client = TxnPeer(world.peer())
        txn = await client.begin(ttl_ms=60_000)
        await client.add_partitions(txn)
        owners.away.add(TOPIC)
        ending = asyncio.ensure_future(client.end(txn, commit=True))
        transaction = world.broker.transactions.coordinators[0].transactions[txn.sequence]
        await world.until(lambda: transaction.closing, "closing")
        await world.settle()
        assert not ending.done()
        world.clock.advance(61_000)
        assert (await ending).error == pb.InvalidTxnStatus
        world.broker.alarms.ring()
        await world.until(lambda: transaction.state is TxnState.ABORTED, "abort")
        owners.away.clear()
        await world.until(lambda: not transaction.unresolved, "the end of its part")

    in_cluster(story)


def test_topics_of_a_namespace_that_is_not_there_do_not_keep_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part_waits, "_KNOCK_S", 0.01)

    async def story(world: World, owners: OnlyOwner) -> None:
        async def locate(name: TopicName, *, authoritative: bool) -> TopicPlace:
            if name.namespace == "gone":
                raise NamespaceNotFoundError(f"{name.namespace_name} does not exist")
            return HERE

        monkeypatch.setattr(owners, "locate", locate)
        monkeypatch.setattr(owners, "has", lambda name: name.namespace != "gone")
        client = TxnPeer(world.peer())
        txn = await client.begin()
        await client.add_partitions(txn, "persistent://public/gone/t")
        await client.commit(txn)

    in_cluster(story)


def test_acknowledgements_in_transactions_are_bounded_while_the_store_stalls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=1)
        transactions = world.broker.transactions
        assert isinstance(transactions, several.SharedTransactions)
        stalls = asyncio.Event()

        async def learn(topic: Topic, id_: TxnId) -> None:
            await stalls.wait()
            raise NotAllowedError(f"{topic.name} was not added to transaction {id_}")

        monkeypatch.setattr(transactions._resolving, "learn", learn)
        data = message_id_data(client.peer.messages[0].position)

        def ack(number: int) -> bytes:
            """It asks for no receipt."""
            acked = pb.CommandAck(
                consumer_id=1,
                ack_type=pb.CommandAck.Individual,
                message_id=[data],
                txnid_most_bits=0,
                txnid_least_bits=number,
            )
            return encode_command(pb.BaseCommand(type=Type.ACK, ack=acked))

        client.peer.send(*map(ack, range(WAITING_MAX + 1)))
        assert not client.peer.reading
        stalls.set()
        await world.until(lambda: client.peer.reading, "reading again")
        assert not client.peer.commands(Type.ACK_RESPONSE)

    in_cluster(story)


def test_what_waits_of_a_producer_that_is_closed_is_no_longer_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        transactions = world.broker.transactions
        assert isinstance(transactions, several.SharedTransactions)
        stalls, learn = asyncio.Event(), transactions._resolving.learn

        async def later(topic: Topic, id_: TxnId) -> None:
            await stalls.wait()
            await learn(topic, id_)

        monkeypatch.setattr(transactions._resolving, "learn", later)
        client.send(txn, 0, b"a")
        client.peer.send(send(1, 1, b"plain"))
        await client.peer.ask(Type.CLOSE_PRODUCER, producer_id=1, request_id=70)
        assert client.peer.session._in_flight_bytes > 0
        stalls.set()
        await world.until(lambda: not client.peer.session._in_flight_bytes, "nothing in flight")
        assert client.peer.receipts == []
        await client.commit(txn)

    in_cluster(story)


def test_a_server_of_the_store_that_is_behind_refuses_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker reads from its own server of an ensemble, which may hear of the coordinator's write after
    the client does."""

    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=1)
        behind: set[str] = set()
        get, sync = world.store.get, world.store.sync

        async def stale(path: str) -> Value | None:
            return None if path in behind else await get(path)

        async def caught_up() -> None:
            await sync()
            behind.clear()

        txn = await client.begin()
        await client.add_partitions(txn)
        await client.add_subscription(txn)
        monkeypatch.setattr(world.store, "get", stale)
        monkeypatch.setattr(world.store, "sync", caught_up)
        behind.add(part_path(LOG, txn))
        await client.publish(txn, 1, b"a")
        other = await client.begin()
        await client.add_subscription(other)
        behind.add(part_path(LOG, other))
        assert not (await client.ack(other, client.peer.messages[0].position)).HasField("error")
        # And the coordinator: a former owner began it late.
        header = await get(header_path(txn))
        assert header is not None
        late = TxnId(txn.coordinator, txn.sequence + 100)
        began = b'{"s":"OPEN","o":"","t":%d,"l":60000}' % world.clock.now_ms()
        await world.store.put(header_path(late), began)
        behind.add(header_path(late))
        for each in (txn, other, late):
            await client.commit(each)

    in_cluster(story)


def test_a_topic_that_is_added_for_messages_later_takes_them_though_its_header_is_read_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World, _: object) -> None:
        client = await opened(world, messages=1)
        txn = await client.begin()
        await client.add_subscription(txn)
        assert not (await client.ack(txn, client.peer.messages[0].position)).HasField("error")
        early = await world.store.get(header_path(txn))
        get, sync, is_behind = world.store.get, world.store.sync, True

        async def stale(path: str) -> Value | None:
            return early if is_behind and path == header_path(txn) else await get(path)

        async def caught_up() -> None:
            nonlocal is_behind
            await sync()
            is_behind = False

        monkeypatch.setattr(world.store, "get", stale)
        monkeypatch.setattr(world.store, "sync", caught_up)
        await client.add_partitions(txn)
        await client.publish(txn, 1, b"a")
        await client.commit(txn)

    in_cluster(story)


def test_a_topic_says_that_it_is_closed_once_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was away for longer than one attempt. Else the commit would wait until its time is over."""
    monkeypatch.setattr(part_waits, "_KNOCK_S", 0.01)

    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"a")
        write_part, failures = KeptParts.write_part, 3

        async def away(self: KeptParts, log_name: str, id_: TxnId, data: bytes, *more: Any) -> int:
            nonlocal failures
            if b'"c":1' in data and failures:
                failures -= 1
                raise StoreUnreachableError("the store is away")
            return await write_part(self, log_name, id_, data, *more)

        monkeypatch.setattr(KeptParts, "write_part", away)
        ending = asyncio.ensure_future(client.commit(txn))

        def is_over() -> bool:
            world.clock.advance(1_000)
            world.broker.alarms.ring()
            return ending.done()

        await world.until(is_over, "the end")
        await ending
        assert failures == 0
        await world.until(lambda: bodies(client.peer) == [b"a"], "the message")

    in_cluster(story)


def test_a_message_that_a_topic_lost_keeps_its_transaction_from_committing_at_the_next_owner() -> None:
    """That one knows of durable messages only."""

    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"first")
        topic = await world.topic()
        world.ledgers.auto_sync = False
        client.send(txn, 1, b"lost")
        await world.settle()
        world.ledgers.writer(topic.log.last_position.ledger_id).fail(write_error())
        world.ledgers.auto_sync = True
        await world.settle()
        await next_broker(world)
        await world.topic()
        answer = await TxnPeer(world.peer()).end(txn, commit=True)
        assert answer.error == pb.InvalidTxnStatus
        assert "could not be stored" in answer.message

    in_cluster(story)


def test_what_a_client_sends_again_after_it_ended_its_transaction_is_refused() -> None:
    """It did not wait for the receipt, and its topic was unloaded. The commit is without that message, and
    the client is told so when it sends the message again."""

    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txn = await client.begin()
        await client.add_partitions(txn)
        await client.publish(txn, 0, b"first")
        await world.broker.unload(TopicName.parse(TOPIC))
        client.send(txn, 1, b"second")
        await client.commit(txn)
        await client.peer.producer(2, request_id=70)
        client.send(txn, 1, b"second", 2)
        error = await world.until(lambda: client.peer.commands(Type.SEND_ERROR), "refusal")
        assert error[0].sequence_id == 1
        reader = world.peer()
        await reader.consumer(9, request_id=90, subscription="later", permits=100)
        await world.until(lambda: bodies(reader, 9) == [b"first"], "messages")

    in_cluster(story)


def test_what_is_done_for_all_transactions_of_a_topic_is_done_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand may be open. Begun at once, their work stalled the broker for longer than its
    session lasts."""
    some = 4
    for module in (participants, part_writing):
        monkeypatch.setattr(module, "TOGETHER", some)

    async def story(world: World, _: object) -> None:
        client = await opened(world)
        txns = [await client.begin() for _ in range(20)]
        for number, txn in enumerate(txns):
            await client.add_partitions(txn)
            await client.publish(txn, number, b"a")
        running = most = looks = 0
        header = KeptParts.header

        async def counted(self: KeptParts, id_: TxnId) -> tuple[bytes, int] | None:
            nonlocal running, most, looks
            running, looks = running + 1, looks + 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await header(self, id_)

        monkeypatch.setattr(KeptParts, "header", counted)
        await next_broker(world)
        await world.until(lambda: is_loaded(world), "the topic")
        assert (most, looks) == (some, len(txns))
        resolving = world.broker.transactions._resolving
        assert isinstance(resolving, participants.Participants)
        looks = 0
        resolving._session_changed(SessionEvent.RECONNECTED)
        await world.until(lambda: looks >= len(txns), "looks")
        assert most == some

    def is_loaded(world: World) -> bool:
        if TOPIC not in world.broker.topics and not world.broker.registry._work:
            world.broker.tasks.spawn(world.broker.topic(TopicName.parse(TOPIC)))
        return TOPIC in world.broker.topics

    in_cluster(story)
