"""What users of queues with shared subscriptions complain about most often, one story each."""

from __future__ import annotations

import asyncio

import pytest

from fakes.managed_logs import Process, until
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.delayed.index import DelayedIndex, IndexLimits
from magnetar.broker.delayed.room import DelayedDelivery
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.runtime.alarms import Alarms
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.dispatch_machines import Acks


class Outlet:
    writable = True


def consumer(number: int, permits: int) -> Consumer:
    return Consumer(number, f"c{number}", Outlet(), permits=permits)


@pytest.mark.parametrize("by_key", [False, True])
def test_delivery_goes_on_when_consumers_join_and_leave(by_key: bool) -> None:
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

    steady = consumer(0, 1)
    dispatcher.add(steady)
    for number in range(1, 20):
        guest = consumer(number, 7)
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


def test_acknowledged_messages_do_not_come_back_after_a_restart_however_many_holes_there_are() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        ledger_id = log.append([b"x"] * 40_000, None).ledger_id
        process.ledgers.sync()
        await process.settle()
        for start in range(1, 40_000, 4_000):
            cursor.ack([Position(ledger_id, i) for i in range(start, start + 4_000, 2)])
        await cursor.flush()
        process = await process.crash()
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        assert len(cursor.acked_ranges()) == 20_000
        assert all(cursor.is_acked(Position(ledger_id, i)) is bool(i % 2) for i in range(40_000))
        await process.logs.close()

    asyncio.run(story())


def test_redelivery_counts_survive_a_restart() -> None:
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
        dispatcher.add(consumer(1, 10))
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
    for i in range(20_000):
        index.add(Position(1, i), 3_600_000 + i * 7_919 % 20_000 * 50, 0)
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
            late = max(late, now_ms - (3_600_000 + position.entry_id * 7_919 % 20_000 * 50))
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
        dispatcher.add(consumer(1, 10))
        assert dispatcher.want() is None
        await until(process, lambda: not held.loading)
        assert held.count == 2_000
        assert process.ledgers.reads - reads <= 4, "more was read than one entry of each segment"
        want = dispatcher.want()
        assert want is not None
        assert want.position == Position(first.ledger_id, 2_000)
        await process.logs.close()

    asyncio.run(story())
