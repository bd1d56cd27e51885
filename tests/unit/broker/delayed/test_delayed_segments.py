"""Delayed entries of a subscription on disk: over crashes, losses, and the end of the subscription."""

from __future__ import annotations

import asyncio

from fakes.managed_logs import Process, until
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MetadataError
from magnetar.base.ids import Position
from magnetar.broker.delayed.delayed_delivery import DelayedDelivery
from magnetar.broker.delayed.index import IndexLimits
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.runtime.alarms import Alarms
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

LIMITS = IndexLimits(seal_min=50, seal_max=60, segments_max=4, chunk_records=8)
HOUR = 3_600_000


def delayed_entry(due_ms: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, deliver_at_time=due_ms)
    return build_entry(metadata, b"x")


class Holding:
    """A subscription's delayed entries and what is told of them."""

    def __init__(self, process: Process, cursor: Cursor, ledger_id: int) -> None:
        self.process = process
        self.ledger_id = ledger_id
        self.woken = self.reread = 0
        self.alarms = Alarms(process.clock)
        self.delays = DelayedDelivery(
            process.clock,
            self.alarms,
            cursor,
            process.spawn,
            wake=self._wake,
            reread=self._reread,
            limits=LIMITS,
        )

    def _wake(self) -> None:
        self.woken += 1

    def _reread(self) -> None:
        self.reread += 1

    @classmethod
    async def begin(cls, process: Process, entries: int = 1_000) -> Holding:
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        if log.last_position.entry_id < 0:
            log.append([b"x"] * entries, None)
            process.ledgers.sync()
            await process.settle()
        return cls(process, cursor, log.first_position.ledger_id)

    def hold(self, first: int, count: int, due_ms: int, step_ms: int = 1_000) -> None:
        entries = [delayed_entry(due_ms + i * step_ms) for i in range(count)]
        run = EntryRun(self.ledger_id, first, entries, None, 0, 0)
        assert self.delays.hold(run, 0, count, None) == count

    def take(self) -> list[int]:
        return [position.entry_id for position in self.delays.take_due(1_000)]

    async def take_all(self, count: int) -> list[int]:
        """Takes until there are so many, as time passes."""
        taken: list[int] = []
        for _ in range(2_000):
            taken += self.take()
            if len(taken) >= count:
                return taken
            self.process.clock.advance(2_000)
            self.alarms.ring()
            await self.process.settle()
        raise AssertionError(f"{len(taken)} of {count} came")


def test_far_entries_go_to_disk_and_come_at_their_time() -> None:
    async def story() -> None:
        process = Process()
        holding = await Holding.begin(process)
        holding.hold(0, 300, process.clock.now_ms() + HOUR)
        await process.settle()
        assert len(process.ledgers.tagged("s")) > 1
        assert holding.delays.count == 300
        process.clock.advance(HOUR - 60_000)
        assert not holding.take()
        assert sorted(await holding.take_all(300)) == list(range(300))
        await process.settle()
        assert holding.delays.count == 0
        assert process.ledgers.tagged("s") == [], "segments stay behind"
        await process.logs.close()

    asyncio.run(story())


def test_a_restart_reads_the_index_and_not_the_backlog() -> None:
    """Restores what was written; only what came after the last segment has to be read again."""

    async def story() -> None:
        process = Process()
        holding = await Holding.begin(process)
        start_ms = process.clock.now_ms()
        holding.hold(0, 50, start_ms + HOUR)
        await process.settle()
        holding.hold(50, 20, start_ms + HOUR)
        process = await process.crash()
        holding = await Holding.begin(process)
        assert holding.delays.loading
        await until(process, lambda: not holding.delays.loading)
        assert holding.woken, "dispatch was not told to go on"
        assert holding.delays.count == 50
        assert holding.delays.next_free(Position(holding.ledger_id, 0)).entry_id == 50
        assert not holding.take()
        holding.hold(50, 20, start_ms + HOUR)
        assert holding.delays.count == 70
        assert sorted(await holding.take_all(70)) == list(range(70))
        await process.logs.close()

    asyncio.run(story())


def test_a_lost_segment_means_reading_again() -> None:
    async def story() -> None:
        process = Process()
        holding = await Holding.begin(process)
        holding.hold(0, 60, process.clock.now_ms() + HOUR)
        await process.settle()
        (segment,) = process.ledgers.tagged("s")
        del process.ledgers.ledgers[segment]
        process.clock.advance(HOUR)
        holding.alarms.ring()
        await process.settle()
        assert holding.reread == 1
        assert holding.delays.count == 0
        holding.hold(0, 60, process.clock.now_ms() + HOUR)
        await process.settle()
        (segment,) = process.ledgers.tagged("s")
        process = await process.crash()
        del process.ledgers.ledgers[segment]
        holding = await Holding.begin(process)
        await until(process, lambda: not holding.delays.loading)
        await process.settle()
        assert holding.delays.count == 0
        assert process.ledgers.tagged("s") == []
        await process.logs.close()

    asyncio.run(story())


def test_skipping_and_clearing_leave_no_segment_behind() -> None:
    async def story() -> None:
        process = Process()
        holding = await Holding.begin(process)
        holding.hold(0, 120, process.clock.now_ms() + 1_000 * HOUR)
        await process.settle()
        holding.hold(120, 60, process.clock.now_ms() + 1_000 * HOUR)
        await process.settle()
        before = len(process.ledgers.tagged("s"))
        assert before >= 2
        holding.delays.forget_upto(Position(holding.ledger_id, 100))
        await process.settle()
        assert holding.delays.count == 79
        assert len(process.ledgers.tagged("s")) < before
        holding.delays.forget_upto(Position(holding.ledger_id, 179))
        await process.settle()
        assert process.ledgers.tagged("s") == []
        holding.hold(200, 60, process.clock.now_ms() + HOUR)
        await process.settle()
        assert process.ledgers.tagged("s")
        holding.delays.clear()
        await process.settle()
        assert process.ledgers.tagged("s") == []
        assert not len(holding.alarms)
        await process.logs.close()

    asyncio.run(story())


def test_what_cannot_be_written_stays_in_memory() -> None:
    async def story() -> None:
        process = Process()
        holding = await Holding.begin(process)
        process.store.put_errors.append(MetadataError("the store is away"))
        holding.hold(0, 60, process.clock.now_ms() + HOUR)
        await process.settle()
        assert holding.delays.count == 60
        assert sorted(await holding.take_all(60)) == list(range(60))
        await process.logs.close()

    asyncio.run(story())
