"""Acknowledgements of a subscription that reads the compacted view, against a set of what was acknowledged.

The log is trimmed, compacted again, the broker crashes, messages are acknowledged in any order and delivered
again: no message that is left and not acknowledged may be passed over, and once all are acknowledged nothing
is behind.
"""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.managed_logs import Process
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.compaction.compacted_source import CompactedSource, forget_progress
from magnetar.broker.compaction.job import CompactionStatus
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.compaction.progress import Progress, before
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.managedlog.cursors.ack_words import bits_of_words, words_of_bits
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import (
    build_batch,
    build_entry,
    is_batch,
    parse_metadata,
    split_batch,
    split_entry,
)

TOPIC = TopicName.parse("persistent://public/default/t")
Message = tuple[Position, int]
"""Where a message lies; index -1 for an entry that is not a batch."""

KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), KEYS),
        st.tuples(
            st.sampled_from(["compact", "trim", "restart", "crash", "read", "again"]),
            st.just([]),
        ),
        st.tuples(
            st.sampled_from(["ack", "ack index", "cumulative", "seek"]),
            st.tuples(st.integers(0, 20)).map(list),
        ),
    ),
    max_size=25,
)


def entry_of(keys: list[int], number: int) -> bytes:
    """One message, or a batch; messages of key 5 take it away."""
    bodies = [b"" if key == 5 else b"%d" % number for key in keys]
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if len(keys) == 1:
        metadata.partition_key = str(keys[0] % 5)
        return build_entry(metadata, bodies[0])
    metadata.num_messages_in_batch = len(keys)
    singles = [pb.SingleMessageMetadata(partition_key=str(key % 5)) for key in keys]
    return build_entry(metadata, build_batch(list(zip(singles, bodies, strict=True))))


def messages_of(place: Position, entry: bytes, ack_set: tuple[int, ...] | None) -> list[Message]:
    """What a client hands out of an entry that knows only the ack set."""
    parts = split_entry(entry)
    metadata = parse_metadata(parts.metadata)
    if not is_batch(metadata):
        return [(place, -1)]
    left = -1 if ack_set is None else bits_of_words(ack_set)
    singles = list(split_batch(parts.payload, metadata.num_messages_in_batch))
    found = [(place, index) for index in range(len(singles)) if left >> index & 1]
    assert not any(singles[index][0].compacted_out for _, index in found), "an empty message is handed out"
    return found


class World:
    """One subscription over one log, and what its client acknowledged."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log: ManagedLog
        self.room: TopicCompaction
        self.cursor: Cursor | None = None
        self.source: CompactedSource | None = None
        self.position = EARLIEST
        self.held: list[Message] = []
        self.sizes: dict[Position, int] = {}
        self.acked: set[Message] = set()
        self.durable: set[Message] = set()

    async def load(self) -> None:
        self.log, _ = await self.process.open()
        await self.log.open_cursor(COMPACTION_CURSOR, initial="earliest")
        self.room = TopicCompaction(
            TOPIC, self.log, clock=self.process.clock, spawn=self.process.spawn, closed=lambda: False
        )
        await self.room.load()
        if self.cursor is not None:
            await self.subscribe()

    async def subscribe(self) -> None:
        self.cursor = await self.log.open_cursor("s", initial="earliest")
        self.source = CompactedSource(self.room.view(), self.cursor, EARLIEST)
        self.again()

    def again(self) -> None:
        assert self.source is not None
        self.held = []
        self.position = self.source.next_position(self.source.mark_delete)

    async def read(self) -> bool:
        """Delivers what the next read gives; False when there is nothing."""
        assert self.source is not None
        runs = await self.source.read(self.position, 1 << 20, 2)
        for run in runs:
            for number, entry in enumerate(run.entries, run.first_entry):
                place = Position(run.ledger_id, number)
                assert place >= self.position
                if not self.source.is_acked(place):
                    messages = messages_of(place, entry, self.source.ack_set(place))
                    assert self.acked.isdisjoint(messages) or place < self.cursor_floor(), "delivered again"
                    self.held += messages
                    self.sizes[place] = parse_metadata(split_entry(entry).metadata).num_messages_in_batch
                self.position = Position(place.ledger_id, place.entry_id + 1)
        return bool(runs)

    def cursor_floor(self) -> Position:
        """What was acknowledged before here may come again after a restart."""
        assert self.cursor is not None
        progress = Progress.of(self.cursor.properties)
        return EARLIEST if progress is None else progress.floor

    async def left(self) -> set[Message]:
        """All messages of the compacted view."""
        found: set[Message] = set()
        view, position = self.room.view(), EARLIEST
        while runs := await view.read(position, 1 << 20, 10):
            for run in runs:
                for number, entry in enumerate(run.entries, run.first_entry):
                    kept = list(parse_metadata(split_entry(entry).metadata).compacted_batch_indexes)
                    bits = words_of_bits(sum(1 << index for index in kept)) if kept else None
                    found.update(messages_of(Position(run.ledger_id, number), entry, bits))
            position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
        return found

    def ack_entry(self, place: Position) -> None:
        assert self.source is not None
        self.source.ack([place])
        self.acked.update(message for message in self.held if message[0] == place)

    def ack_one(self, message: Message) -> None:
        place, index = message
        if index < 0:
            self.ack_entry(place)
            return
        assert self.source is not None
        size = self.sizes[place]
        self.source.ack_batch(place, words_of_bits(((1 << size) - 1) & ~(1 << index)), size)
        self.acked.add(message)

    async def check(self) -> None:
        """Delivered again from where the subscription stands, nothing is missing."""
        if self.source is None:
            return
        if self.source._progress is not None:
            self.source._progress.check()
        self.again()
        while await self.read():
            pass
        missing = await self.left() - self.acked - set(self.held)
        assert not missing, f"lost: {missing}"


@settings(max_examples=100, deadline=None)
@given(st.lists(KEYS, max_size=6), STEPS)
def test_nothing_that_is_left_is_passed_over(
    bygone: list[list[int]], steps: list[tuple[str, list[int]]]
) -> None:
    """`bygone` is published, compacted and trimmed before the subscription comes."""
    first: list[tuple[str, list[int]]] = [("publish", keys) for keys in bygone]
    asyncio.run(_play([*first, ("compact", []), ("trim", []), ("subscribe", []), *steps]))


async def _play(steps: list[tuple[str, list[int]]]) -> None:
    world = World(Process(entries_max_per_ledger=2))
    await world.load()
    for number, (kind, values) in enumerate(steps):
        await _step(world, number, kind, values)
        await world.process.settle()
        await world.check()
    if world.source is None or world.cursor is None:
        return
    for message in list(world.held):
        world.ack_one(message)
    await world.process.settle()
    await world.check()
    assert not world.held
    # Read to the end and all acknowledged: nothing is behind.
    assert not world.source.backlog_entries
    assert not world.source.has_holes
    await world.process.logs.close()


async def _step(world: World, number: int, kind: str, values: list[int]) -> None:
    process, source, cursor = world.process, world.source, world.cursor
    if kind == "publish":
        world.log.append([entry_of(values, number)], [len(values)])
    elif kind == "compact":
        world.room.start()
        while world.room.status is CompactionStatus.RUNNING:
            await process.settle()
        assert world.room.status is CompactionStatus.SUCCESS, world.room.error
    elif kind == "trim":
        await world.log.trim()
    elif kind == "crash":
        if cursor is not None:
            await cursor.flush()
        world.process = await process.crash()
        await world.load()
    elif kind == "restart":
        world.process = await process.restart()
        await world.load()
    elif kind == "subscribe":
        if source is None:
            await world.subscribe()
    elif source is None or cursor is None:
        return
    elif kind == "read":
        await world.read()
    elif kind == "again":
        world.again()
    elif kind == "seek":
        left = sorted(await world.left())
        place = left[values[0] % len(left)][0] if left and values[0] else EARLIEST
        cursor.reset(place)
        source.sought(place)
        world.acked = {message for message in await world.left() if message[0] < place}
        world.again()
    elif world.held:
        message = world.held[values[0] % len(world.held)]
        if kind == "ack":
            world.ack_entry(message[0])
        elif kind == "ack index":
            world.ack_one(message)
        else:
            world.acked.update(held for held in world.held if held[0] <= message[0])
            world.acked.update(left for left in await world.left() if left[0] <= message[0])
            source.ack_cumulative(message[0])


def test_progress_is_forgotten_by_a_seek_without_the_view() -> None:
    async def story() -> None:
        world = World(Process(entries_max_per_ledger=2))
        await world.load()
        for number in range(5):
            world.log.append([entry_of([number % 2], number)])
        await world.process.settle()
        await _step(world, 0, "compact", [])
        await world.process.settle()
        await world.log.trim()
        await world.subscribe()
        assert world.cursor is not None
        assert world.source is not None
        await world.read()
        world.source.ack_cumulative(world.log.last_position)
        assert world.source.mark_delete == world.log.last_position
        world.cursor.reset(world.log.first_position)
        forget_progress(world.cursor)
        await world.subscribe()
        assert world.source.mark_delete < before(world.log.first_position)
        await world.process.logs.close()

    asyncio.run(story())
