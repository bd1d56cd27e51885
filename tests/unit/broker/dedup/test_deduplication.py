"""Deduplication of a topic over logs that crash, and how much it remembers."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import write_error
from fakes.managed_logs import Process
from magnetar.base.ids import Position
from magnetar.base.names import NamespaceName
from magnetar.broker.dedup.dedup_state import DedupLimits
from magnetar.broker.dedup.deduplication import Deduplication
from magnetar.broker.service import BrokerConfig
from magnetar.broker.topic.topic import DEDUP_CURSOR
from magnetar.managedlog.log import ManagedLog
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.sessions import World, entry, in_world, send


async def load(process: Process, attached: set[str], **limits: int) -> tuple[ManagedLog, Deduplication]:
    log, _ = await process.open()
    room = await Deduplication.load(
        log, DEDUP_CURSOR, attached=attached, clock=process.clock, limits=DedupLimits(**limits)
    )
    return log, room


async def publish(process: Process, log: ManagedLog, room: Deduplication, name: str, *numbers: int) -> None:
    """Appends what is new, and waits until it is durable."""
    new = [number for number in numbers if room.state.admit(name, [number], [number]) is None]
    if not new:
        return
    position = log.append([entry(b"x", number, name) for number in new], None)
    await process.settle()
    room.persisted(name, new[-1], position, len(new))


def test_a_crash_takes_neither_numbers_nor_the_snapshot() -> None:
    """At every distance from the last snapshot the numbers after a crash are those before it."""

    async def story() -> None:
        process = Process()
        log, room = await load(process, set(), snapshot_entries=4)
        for round_number in range(9):
            for name in ("p", "q"):
                await publish(process, log, room, name, 2 * round_number, 2 * round_number + 1)
            known = room.state.snapshot()
            await process.settle()
            process = await process.crash()
            log, room = await load(process, set(), snapshot_entries=4)
            assert room.state.snapshot() == known
            assert room.state.admit("p", [2 * round_number + 1], [2 * round_number + 1]) is not None
        await process.logs.close()

    asyncio.run(story())


def test_trimming_waits_for_the_snapshot_to_be_durable() -> None:
    """The snapshot is written, the disk has not synced it yet, the log trims what it stands for, kill -9."""

    async def story() -> None:
        process = Process(entries_max_per_ledger=2)
        log, room = await load(process, set(), snapshot_entries=10)
        for number in range(9):
            await publish(process, log, room, "p", number)
        cursor = log.cursors[DEDUP_CURSOR]
        kept = log.entry_count
        process.ledgers.auto_sync = False
        position = log.append([entry(b"x", 9, "p")], None)
        process.ledgers.writer(position.ledger_id).sync()
        room.persisted("p", 9, position, 1)
        assert cursor.properties == {"p": 9}
        await process.settle()
        await log.trim()
        assert log.entry_count == kept + 1
        process = await process.crash()
        process.ledgers.auto_sync = True
        log, room = await load(process, set(), snapshot_entries=10)
        assert room.state.last_sequence("p") == 9
        await process.logs.close()

    asyncio.run(story())


def test_trimming_goes_on_once_the_snapshot_is_durable() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2)
        log, room = await load(process, set(), snapshot_entries=10)
        for number in range(10):
            await publish(process, log, room, "p", number)
        await process.settle()
        assert log.entry_count <= 2
        await process.logs.close()

    asyncio.run(story())


def test_a_snapshot_that_could_not_be_stored_keeps_the_log_and_is_taken_again() -> None:
    async def story() -> None:
        process = Process(entries_max_per_ledger=2)
        log, room = await load(process, set(), snapshot_entries=9, snapshot_ms=1000)
        for number in range(8):
            await publish(process, log, room, "p", number)
        kept = log.entry_count
        # The cursor has no ledger yet: its first change makes one; the log begins none now.
        process.ledgers.create_errors.append(write_error())
        await publish(process, log, room, "p", 8)
        await process.settle()
        await log.trim()
        assert log.entry_count == kept + 1
        process.clock.advance(1000)
        await room.maintain()
        await process.settle()
        assert log.entry_count <= 2
        assert log.cursors[DEDUP_CURSOR].properties == {"p": 8}
        await process.logs.close()

    asyncio.run(story())


def test_loading_replays_little_when_snapshots_are_taken() -> None:
    async def story() -> None:
        process = Process()
        log, room = await load(process, set(), snapshot_entries=10)
        for number in range(95):
            await publish(process, log, room, "p", number)
        await process.settle()
        process = await process.crash()
        log, _ = await process.open()
        cursor = log.cursors[DEDUP_CURSOR]
        assert cursor.properties == {"p": 89}
        assert cursor.backlog_entries == 5
        await process.logs.close()

    asyncio.run(story())


def test_a_snapshot_is_taken_after_a_time_too() -> None:
    async def story() -> None:
        process = Process()
        log, room = await load(process, set(), snapshot_ms=120_000)
        await publish(process, log, room, "p", 7)
        await room.maintain()
        assert log.cursors[DEDUP_CURSOR].properties == {}
        process.clock.step(-3_600_000)
        process.clock.advance(120_000)
        await room.maintain()
        assert log.cursors[DEDUP_CURSOR].properties == {"p": 7}
        await process.logs.close()

    asyncio.run(story())


@pytest.mark.parametrize("snapshot_ms", [0, -1000])
def test_without_an_interval_only_entries_count(snapshot_ms: int) -> None:
    """As Pulsar's setting at 0; a snapshot in every round would be the other end of it."""

    async def story() -> None:
        process = Process()
        log, room = await load(process, set(), snapshot_ms=snapshot_ms)
        await publish(process, log, room, "p", 7)
        process.clock.advance(1 << 40)
        await room.maintain()
        assert log.cursors[DEDUP_CURSOR].properties == {}
        await process.logs.close()

    asyncio.run(story())


def test_producers_that_left_are_bounded_in_number() -> None:
    """A producer without a name gets a new one at each start: without a bound they would pile up for ever."""

    async def story() -> None:
        process = Process()
        attached = {"here"}
        log, room = await load(process, attached, producers_max=20)
        await publish(process, log, room, "here", 0)
        for number in range(500):
            await publish(process, log, room, f"gone-{number}", 0)
        assert len(room.state) <= 1 + 20 + 20 // 8
        assert room.state.last_sequence("here") == 0
        assert room.state.last_sequence("gone-499") == 0
        assert room.state.last_sequence("gone-0") == -1
        await room.snapshot()
        process = await process.crash()
        log, room = await load(process, attached, producers_max=20)
        assert len(room.state) <= 1 + 20 + 20 // 8
        assert room.state.last_sequence("here") == 0
        await process.logs.close()

    asyncio.run(story())


def test_producers_that_left_long_ago_are_forgotten_also_on_disk() -> None:
    async def story() -> None:
        process = Process()
        attached = {"stays", "leaves"}
        log, room = await load(process, attached, inactivity_ms=1000)
        for name in ("stays", "leaves"):
            await publish(process, log, room, name, 5)
        attached.discard("leaves")
        await room.maintain()
        process.clock.advance(999)
        # An operator sets the clock: clients are away for no longer.
        process.clock.step(86_400_000)
        await room.maintain()
        assert room.state.last_sequence("stays") == 5
        assert len(room.state) == 2
        process.clock.advance(1)
        await room.maintain()
        assert room.state.snapshot() == {"stays": 5}
        process = await process.crash()
        log, room = await load(process, attached)
        assert room.state.snapshot() == {"stays": 5}
        await process.logs.close()

    asyncio.run(story())


def test_pieces_of_a_message_without_its_last_are_not_counted_by_a_replay() -> None:
    """Chunked messages: the number is used up with the last piece, also after a crash in between."""

    async def story() -> None:
        process = Process()
        log, room = await load(process, set())
        pieces = [
            build_entry(
                pb.MessageMetadata(
                    producer_name="p",
                    sequence_id=3,
                    publish_time=1,
                    chunk_id=i,
                    num_chunks_from_msg=3,
                    uuid="u",
                ),
                b"x",
            )
            for i in range(3)
        ]
        log.append(pieces[:2], None)
        await process.settle()
        process = await process.crash()
        log, room = await load(process, set())
        assert room.state.last_sequence("p") == -1
        log.append(pieces, None)
        await process.settle()
        process = await process.crash()
        log, room = await load(process, set())
        assert room.state.last_sequence("p") == 3
        await process.logs.close()

    asyncio.run(story())


def test_what_was_handed_over_before_a_refusal_stays_known() -> None:
    """Append 0 waits for the disk, append 1 is refused: when 0 is sent again it must not be stored twice."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(producer_name="p")
        topic = await world.topic()
        assert topic.dedup is not None
        world.ledgers.auto_sync = False
        peer.send(send(1, 0))
        await world.settle()
        ending = asyncio.create_task(topic.log.terminate())
        await world.settle()
        peer.send(send(1, 1))
        await world.settle()
        assert topic.dedup.state.admit("p", [0], [0]) is not None
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        await ending
        assert topic.dedup.state.last_sequence("p") == 0

    in_world(story, BrokerConfig(deduplication=True))


def test_levels_of_the_switch() -> None:
    """Topic before namespace before broker."""

    async def story(world: World) -> None:
        topic = await world.topic()
        assert topic.dedup is not None
        await world.broker.policies.update_namespace(
            NamespaceName("public", "default"), lambda document: document.update(deduplicationEnabled=False)
        )
        await world.broker.apply_policies()
        assert topic.dedup is None
        assert DEDUP_CURSOR not in topic.log.cursors
        await world.broker.policies.update_topic(
            topic.name, lambda document: document.update(deduplicationEnabled=True)
        )
        await world.broker.apply_policies()
        assert topic.dedup is not None

    in_world(story, BrokerConfig(deduplication=True))


def test_the_snapshot_interval_is_a_policy() -> None:
    async def story(world: World) -> None:
        topic = await world.topic()
        assert topic.dedup is not None
        await world.broker.policies.update_namespace(
            NamespaceName("public", "default"),
            lambda document: document.update(deduplicationSnapshotIntervalSeconds=7),
        )
        await world.broker.apply_policies()
        assert topic.dedup.limits.snapshot_ms == 7000

    in_world(story, BrokerConfig(deduplication=True))


def test_positions_of_a_snapshot_are_those_of_its_numbers() -> None:
    async def story() -> None:
        process = Process()
        log, room = await load(process, set())
        await publish(process, log, room, "p", 0, 1, 2)
        await room.snapshot()
        last = log.last_position
        assert isinstance(last, Position)
        assert log.cursors[DEDUP_CURSOR].mark_delete == last
        await process.logs.close()

    asyncio.run(story())
