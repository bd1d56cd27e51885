"""Pulsar's most frequent and worst bugs, one test each: see docs/known-bugs.md for the whole table.

Numbers are those of apache/pulsar's issues.
"""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import write_error
from fakes.managed_logs import Process, until
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.delayed.delayed_delivery import DelayedDelivery
from magnetar.broker.delayed.index import DelayedIndex, IndexLimits
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.service import BrokerConfig
from magnetar.metadata import keys
from magnetar.runtime.alarms import Alarms
from magnetar.schemas.registry import SchemaRegistry
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_batch, build_entry, parse_metadata, split_batch, split_entry
from magnetar.wire.sends import encode_send
from support.dispatch_machines import Acks
from support.sessions import TOPIC, Peer, Type, World, command, in_world, send

DEDUP = BrokerConfig(deduplication=True)


def keyed(sequence_id: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1, partition_key=f"k{sequence_id % 5}"
    )
    return encode_send(1, sequence_id, 1, build_entry(metadata, b"%d" % sequence_id))


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_delivery_goes_on_while_consumers_join_and_leave(kind: str) -> None:
    """Delivery stopped silently until the topic was unloaded (8115, 7792, 10284, 14902, 22657)."""

    async def story(world: World) -> None:
        producer = world.peer()
        await producer.producer()
        producer.send(*(keyed(i) for i in range(60)))
        await world.until(lambda: len(producer.receipts) == 60, "receipts")
        acknowledged: set[bytes] = set()

        def acknowledge(peer: Peer, count: int) -> None:
            for message in peer.messages[:count]:
                peer.ack(1, message.position)
                acknowledged.add(message.entry[message.payload_at :])

        for turn in range(12):
            peers = [world.peer() for _ in range(3)]
            for peer in peers:
                await peer.consumer(kind=kind, permits=1 + turn % 4)
            await world.settle()
            acknowledge(peers[turn % 3], 2)
            for peer in peers[turn % 2 :] + peers[: turn % 2]:
                peer.session.lost()
            await world.settle()
        last = world.peer()
        await last.consumer(kind=kind, permits=1000)
        everything = {b"%d" % i for i in range(60)}
        await world.until(lambda: acknowledged | set(last.bodies) == everything, "the rest")

    in_world(story)


def test_acknowledged_messages_stay_acknowledged_however_many_holes_there_are() -> None:
    """Holes above a cap of 10,000 were dropped at a restart, without a word (25540, 4849, 7554, 22709)."""

    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        count = 24_002
        log.append([b"x"] * count, None)
        await process.settle()
        ledger = listener.positions[0].ledger_id
        cursor.ack([Position(ledger, entry) for entry in range(1, count, 2)])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        assert all(log.cursors["s"].is_acked(Position(ledger, entry)) for entry in range(1, count, 2))
        assert not any(log.cursors["s"].is_acked(Position(ledger, entry)) for entry in range(0, count, 2))
        await process.logs.close()

    asyncio.run(story())


def test_redelivery_counts_survive_a_crash() -> None:
    """They were kept in memory only, so that poison messages never reached the dead letters (9047, 6451)."""

    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        log.append([b"x"] * 3, None)
        await process.settle()
        poison = listener.positions[1]
        for _ in range(3):
            cursor.redelivered([poison])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        assert log.cursors["s"].redelivery_count(poison) == 3
        await process.logs.close()

    asyncio.run(story())


def test_policies_of_topics_are_no_topic_and_do_not_keep_a_namespace_from_loading() -> None:
    """Policies in a system topic made whole namespaces unloadable (25294, 15891, 16331)."""

    async def story(world: World) -> None:
        names = [TopicName.parse(f"persistent://public/default/t{i}") for i in range(20)]
        for name in names:
            await world.broker.topic(name)
            await world.broker.policies.update_topic(
                name, lambda document: document.update(deduplicationEnabled=True)
            )
            await world.broker.unload(name)
        stored = await world.logs.names("public/default")
        assert sorted(stored) == sorted(name.log_name for name in names)
        for name in names:
            assert (await world.broker.topic(name)).dedup is not None

    in_world(story)


def test_loading_a_topic_costs_the_same_among_ten_thousand_others() -> None:
    """Namespaces of this size could not be listed, and loading storms followed (15254, 6563, 12651)."""

    async def story(world: World) -> None:
        # The broker's own first look at names is over: what is counted is the load's.
        await world.until(lambda: world.broker.unloaded.seen.at_ms, "a first look at topics")
        for i in range(10_001):
            await world.store.put(f"/managed-ledgers/public/default/persistent/other-{i}", b"")
        assert len(await world.logs.names("public/default")) == 10_001
        calls: list[str] = []
        get, children = world.store.get, world.store.children

        async def counted_get(path: str) -> object:
            calls.append(path)
            return await get(path)

        async def counted_children(path: str) -> list[str]:
            calls.append(path)
            return await children(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store, "get", counted_get)
            patch.setattr(world.store, "children", counted_children)
            await world.topic()
        assert len(calls) < 25
        assert not any("other-" in path or path.endswith("/persistent") for path in calls)

    in_world(story)


def test_a_schema_outlives_every_ledger_and_can_be_deleted() -> None:
    """Schemas lay in a ledger: when that was lost the topic was, too; deletion left traces (17630, 20414)."""

    async def story(world: World) -> None:
        topic = TopicName.parse(TOPIC)
        text = pb.Schema(name="n", type=pb.Schema.String, schema_data=b"")
        number = pb.Schema(name="n", type=pb.Schema.Int32, schema_data=b"")
        await world.broker.schemas.add(topic, text)
        for ledger_id in list(world.ledgers.ledgers):
            await world.ledgers.delete(ledger_id)
        # A registry that has cached nothing, as after a restart.
        registry = SchemaRegistry(world.store)
        latest = await registry.latest(topic)
        assert latest is not None
        assert latest.schema.type == pb.Schema.String
        await registry.delete(topic)
        assert await world.store.children(keys.schema(topic)) == []
        assert (await registry.add(topic, number)).version == 0

    in_world(story)


def test_dedup_what_was_never_stored_is_no_duplicate() -> None:
    """The highest number rose before its entry was stored: the retry of a failed one was lost (5218)."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(producer_name="p")
        peer.send(send(1, 0, b"a"))
        await world.until(lambda: peer.receipts, "a receipt")
        # The snapshot's cursor has a ledger of its own; the failed writer is the log's.
        world.ledgers.auto_sync = False
        peer.send(send(1, 1, b"b"))
        await world.settle()
        world.ledgers.writer(world.ledgers.tagged(None)[-1]).fail(write_error())
        await world.until(lambda: peer.commands(Type.CLOSE_PRODUCER), "the producer is sent away")
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        again = world.peer()
        answer = await again.producer(producer_name="p")
        assert answer.last_sequence_id == 0
        again.send(send(1, 0, b"a"), send(1, 1, b"b"))
        await world.until(lambda: len(again.receipts) == 2, "receipts")
        await again.consumer(permits=10, request_id=5)
        await world.until(lambda: again.bodies, "messages")
        await world.settle()
        assert again.bodies == [b"a", b"b"]

    in_world(story, DEDUP)


def batch(*numbers: int, compression: int = pb.NONE) -> bytes:
    messages = [(pb.SingleMessageMetadata(sequence_id=n, payload_size=0), b"%d" % n) for n in numbers]
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=numbers[0],
        highest_sequence_id=numbers[-1],
        publish_time=1,
        num_messages_in_batch=len(numbers),
        compression=compression,
    )
    return encode_send(
        1,
        numbers[0],
        len(numbers),
        build_entry(metadata, build_batch(messages)),
        highest_sequence_id=numbers[-1],
    )


def numbers_in(peer: Peer) -> list[int]:
    """The numbers of all messages that came, in batches or alone."""
    found = []
    for message in peer.messages:
        parts = split_entry(message.entry)
        metadata = parse_metadata(parts.metadata)
        found += [
            single.sequence_id for single, _ in split_batch(parts.payload, metadata.num_messages_in_batch)
        ]
    return found


def test_dedup_a_batch_with_old_numbers_keeps_its_new_ones() -> None:
    """One old number dropped a whole batch, and what was new in it was acknowledged and lost (6273)."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(producer_name="p")
        peer.send(batch(0, 1, 2), batch(3, 4, 5))
        peer.send(batch(4, 5, 6, 7), batch(6, 7), batch(8, 9))
        await world.until(lambda: len(peer.receipts) == 5, "receipts")
        await peer.consumer(permits=100, request_id=5)
        await world.until(lambda: len(numbers_in(peer)) >= 10, "messages")
        await world.settle()
        assert numbers_in(peer) == list(range(10))
        # After a restart as well: what was cut is not taken for more, or for less, than it is.
        await world.broker.unload(TopicName.parse(TOPIC))
        again = world.peer()
        assert (await again.producer(producer_name="p")).last_sequence_id == 9

    in_world(story, DEDUP)


def test_dedup_a_batch_that_cannot_be_opened_is_doubled_rather_than_lost() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(producer_name="p")
        peer.send(batch(0, 1, 2), batch(2, 3, compression=pb.ZLIB))
        await world.until(lambda: len(peer.receipts) == 2, "receipts")
        await peer.consumer(permits=100, request_id=5)
        await world.until(lambda: len(peer.messages) == 2, "both")

    in_world(story, DEDUP)


def test_an_unload_lets_clients_go_on_where_they_were() -> None:
    """Unloads and restarts took minutes and left producers and consumers stuck (25394, 12160, 14767)."""

    async def story(world: World) -> None:
        producer, consumer = world.peer(), world.peer()
        await producer.producer()
        await consumer.consumer(permits=100)
        sent = 0
        for turn in range(5):
            producer.send(*(send(1, sent + i, b"%d" % (sent + i)) for i in range(4)))
            sent += 4
            await world.until(lambda: len(producer.receipts) == sent, "receipts")  # noqa: B023 - awaited here
            await world.broker.unload(TopicName.parse(TOPIC))
            await world.until(lambda: len(producer.commands(Type.CLOSE_PRODUCER)) == turn + 1, "sent away")  # noqa: B023
            assert len(consumer.commands(Type.CLOSE_CONSUMER)) == turn + 1
            assert (await producer.producer(request_id=10 + turn)).producer_name
            await consumer.consumer(request_id=20 + turn, permits=100)
        everything = {b"%d" % i for i in range(sent)}
        await world.until(lambda: set(consumer.bodies) == everything, "all messages")

    in_world(story)


def test_permits_of_a_batch_are_counted_in_messages() -> None:
    """Permits that went wrong with batches left consumers without messages (part of 8115)."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        peer.send(batch(0, 1, 2), batch(3, 4, 5), batch(6, 7, 8))
        await peer.consumer(kind="Shared", permits=1)
        await world.until(lambda: len(peer.messages) == 1, "a batch for one permit")
        await world.settle()
        assert len(peer.messages) == 1
        peer.send(encode_flow(1, 2))
        await world.settle()
        assert len(peer.messages) == 1
        peer.send(encode_flow(1, 1))
        await world.until(lambda: len(peer.messages) == 2, "the next")

    in_world(story)


def test_requests_that_nobody_offers_do_not_stall_readers() -> None:
    """Transactions stalled readers and spun (26368, 22943): here they are refused, at once and alone."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        peer.send(send(1, 0, b"a"))
        peer.send(command(Type.TC_CLIENT_CONNECT_REQUEST, request_id=7, tc_id=0))
        await peer.consumer(permits=10, request_id=8)
        await world.until(lambda: peer.bodies == [b"a"], "the message")

    in_world(story)


class Outlet:
    writable = True

    def ask_output(self) -> bool:
        return self.writable


def member(number: int, permits: int) -> Consumer:
    return Consumer(number, f"c{number}", Outlet(), permits=permits)


@pytest.mark.parametrize("by_key", [False, True])
def test_members_that_leave_without_an_acknowledgement_do_not_stop_dispatch(by_key: bool) -> None:
    """On Shared and Key_Shared, with members that take messages and leave without acknowledging any."""
    cursor, start = Acks(), Position(0, 0)
    dispatcher = SharedDispatcher(cursor, start)
    if by_key:
        dispatcher = KeySharedDispatcher(
            cursor, start, sticky=False, allow_out_of_order=False, hash_of=lambda entry: entry[0] + 1
        )
    log = [bytes([i % 50]) for i in range(400)]
    got: dict[Consumer, list[Position]] = {}

    def pump() -> None:
        while (want := dispatcher.want()) is not None:
            first = want.position.entry_id
            entries = log[first : first + want.entries_max]
            runs = [EntryRun(0, first, entries, None, first, 0)] if entries else []
            if not runs and not want.replay:
                return
            for each in dispatcher.offer(want, runs):
                for row in each.rows or range(each.start, each.stop):
                    got.setdefault(each.consumer, []).append(Position(0, each.run.first_entry + row))

    steady = member(0, 1)
    dispatcher.add(steady)
    for number in range(1, 20):
        guest = member(number, 7)
        dispatcher.add(guest)
        pump()
        dispatcher.remove(guest)
        got.pop(guest, None)
        dispatcher.check()
    while len(cursor.done) < len(log):
        before = len(cursor.done)
        steady.permits += 10
        pump()
        taken = got.pop(steady, [])
        cursor.done.update(taken)
        dispatcher.acked(steady, taken)
        assert len(cursor.done) > before, f"stuck at {before}"


def test_redelivery_counts_are_sent_after_a_crash() -> None:
    """So that messages reach the dead-letter topic of a client whose broker restarts."""

    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        position = log.append([b"x"] * 3, None)
        process.ledgers.sync()
        await process.settle()
        for _ in range(3):
            cursor.redelivered([position])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        dispatcher = SharedDispatcher(cursor, log.next_position(cursor.mark_delete))
        dispatcher.add(member(1, 10))
        want = dispatcher.want()
        assert want is not None
        (sent,) = dispatcher.offer(want, await log.read(want.position, 1000, want.entries_max))
        assert sent.redeliveries == [3, 0, 0]
        await process.logs.close()

    asyncio.run(story())


def delayed_entry(due_ms: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, deliver_at_time=due_ms)
    return build_entry(metadata, b"x")


def test_delayed_messages_take_little_memory_and_come_on_time() -> None:
    """However they are spread; what is far away is on disk, and read before its time."""
    index = DelayedIndex(IndexLimits(seal_min=1_000, seal_max=2_000))
    disk: dict[int, list[bytes]] = {}
    for i in range(8_000):
        index.add(Position(1, i), 3_600_000 + i * 7_919 % 8_000 * 50, 0)
        if i % 1_000 == 999 and (sealing := index.next_seal(0)) is not None:
            assert list(sealing.encode()) is not None
            disk[100 + i] = sealing.entries
            index.sealed(sealing, 100 + i)
    assert index.in_memory <= 2_000
    late = 0
    now_ms = 0
    while len(index):
        now_ms = max(now_ms, index.next_due_ms() or 0)
        while (place := index.next_load(now_ms)) is not None:
            index.loaded(place[0], disk[place[0]][place[1]], now_ms)
        for position in index.pop_due(now_ms, 1_000):
            late = max(late, now_ms - (3_600_000 + position.entry_id * 7_919 % 8_000 * 50))
    assert 0 <= late <= 32


def test_recovery_of_delayed_messages_does_not_hold_up_dispatch() -> None:
    """A restart reads one entry of each segment, not the backlog, and what is not delayed comes at once."""

    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        limits = IndexLimits(seal_min=500, seal_max=1_000)

        def delays() -> DelayedDelivery:
            alarms = Alarms(process.clock)
            nothing = lambda: None  # noqa: E731
            return DelayedDelivery(
                process.clock, alarms, cursor, process.spawn, wake=nothing, reread=nothing, limits=limits
            )

        far_ms = process.clock.now_ms() + 3_600_000
        entries = [delayed_entry(far_ms + i) for i in range(2_000)]
        first = log.append([*entries, b"now"], None)
        process.ledgers.sync()
        await process.settle()
        assert delays().hold(EntryRun(first.ledger_id, 0, entries, None, 0, 0), 0, 2_000, None) == 2_000
        await process.settle()
        process = await process.crash()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        reads = process.ledgers.reads
        held = delays()
        dispatcher = SharedDispatcher(cursor, log.next_position(cursor.mark_delete), held)
        dispatcher.add(member(1, 10))
        assert dispatcher.want() is None
        await until(process, lambda: not held.loading)
        assert held.count == 2_000
        assert process.ledgers.reads - reads <= 4, "more was read than one entry of each segment"
        want = dispatcher.want()
        assert want is not None
        assert want.position == Position(first.ledger_id, 2_000)
        await process.logs.close()

    asyncio.run(story())
