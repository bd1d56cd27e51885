"""Compaction of a topic: one at a time, beside live traffic, by threshold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.ledgers import write_error
from fakes.managed_logs import Process, until
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.compaction.job import CompactionStatus
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.compaction.survivors import HEAVY_BYTES, is_heavy, left_in_batch
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.errors import ConflictError
from magnetar.broker.topic.any_topic import ReaderStart
from magnetar.client.compression import compress
from magnetar.managedlog.cursors.cursor_store import COMPONENT
from magnetar.managedlog.log import ManagedLog
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry, split_entry

TOPIC = TopicName.parse("persistent://public/default/t")


def keyed(key: str, body: bytes) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
    return build_entry(metadata, body)


async def world() -> tuple[Process, ManagedLog, TopicCompaction]:
    process = Process(entries_max_per_ledger=3)
    log, _ = await process.open()
    await log.open_cursor(COMPACTION_CURSOR, initial="earliest")
    room = TopicCompaction(TOPIC, log, clock=process.clock, spawn=process.spawn, closed=lambda: False)
    return process, log, room


async def bodies(room: TopicCompaction) -> list[bytes]:
    view, position = room.view(), EARLIEST
    found: list[bytes] = []
    while runs := await view.read(position, 1 << 20, 100):
        found += [bytes(split_entry(entry).payload) for run in runs for entry in run.entries]
        position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
    return found


async def ended(process: Process, room: TopicCompaction) -> None:
    await until(process, lambda: room.status is not CompactionStatus.RUNNING)
    await process.settle()


def test_compaction_neither_loses_messages_nor_sticks() -> None:
    """Published beside it, compacted again and again, with the log trimmed behind it."""

    async def story() -> None:
        process, log, room = await world()
        for number in range(12):
            log.append([keyed(f"k{number % 3}", b"%d" % number)])
            await process.settle()
            room.start()
            log.append([keyed("live", b"beside %d" % number)])
            await ended(process, room)
            assert room.status is CompactionStatus.SUCCESS, room.error
            await log.trim()
            found = await bodies(room)
            assert b"%d" % number in found
            assert found[-1] == b"beside %d" % number
        assert [body for body in found if b" " not in body] == [b"9", b"10", b"11"]
        await process.logs.close()

    asyncio.run(story())


def test_a_second_compaction_is_refused_while_one_runs() -> None:
    async def story() -> None:
        process, log, room = await world()
        log.append([keyed("k", b"x")])
        await process.settle()
        room.start()
        with pytest.raises(ConflictError):
            room.start()
        await ended(process, room)
        room.start()
        await ended(process, room)
        assert room.status is CompactionStatus.SUCCESS
        await process.logs.close()

    asyncio.run(story())


def test_a_threshold_begins_a_compaction() -> None:
    async def story() -> None:
        process, log, room = await world()
        room.job.threshold_bytes = 500
        log.append([keyed("k", b"x" * 100)])
        await process.settle()
        await room.start_if_due()
        assert room.status is CompactionStatus.NOT_RUN
        log.append([keyed("k", b"y" * 400)])
        await process.settle()
        await room.start_if_due()
        await ended(process, room)
        assert await bodies(room) == [b"y" * 400]
        assert room.job.removed_messages == 1
        await process.logs.close()

    asyncio.run(story())


def test_two_who_find_a_compaction_due_at_the_same_time_begin_one() -> None:
    """The round and a change of policies both waited for the cursor; the second was refused as in progress,
    and so the change of policies failed."""

    async def story() -> None:
        process, log, room = await world()
        room.job.threshold_bytes = 50
        log.append([keyed("k", b"x" * 100)])
        await process.settle()
        await log.delete_cursor(COMPACTION_CURSOR)
        process.ledgers.auto_sync = False
        await asyncio.gather(room.start_if_due(), room.start_if_due())
        process.ledgers.auto_sync = True
        process.ledgers.sync()
        await ended(process, room)
        assert room.status is CompactionStatus.SUCCESS
        await process.logs.close()

    asyncio.run(story())


def test_the_last_message_of_the_view_is_one_that_is_left() -> None:
    async def story() -> None:
        process, log, room = await world()
        log.append([keyed("k", b"x"), keyed("gone", b"y"), keyed("gone", b"")])
        await process.settle()
        first = log.first_position
        assert await room.last_message() is None
        room.start()
        await ended(process, room)
        assert await room.last_message() == (first, -1)
        await process.logs.close()

    asyncio.run(story())


def test_indexes_of_messages_and_turns_of_the_loop() -> None:
    """Survivors that are neighbours are appended together; each keeps the index that it had."""

    async def story() -> None:
        process, log, room = await world()
        keys = ["a", "x", "b", "c", "x", "d", "x", "e", "f", "g"]
        for first in range(0, len(keys), 5):
            log.append([keyed(key, b"v") for key in keys[first : first + 5]])
            await process.settle()
        room.start()
        await ended(process, room)
        assert room.stored is not None
        found = await room.stored.read(EARLIEST, 1 << 20, 100)
        indexes = [run.base_index + offset for run in found for offset in range(len(run.entries))]
        assert indexes == [number for number, key in enumerate(keys) if key != "x" or number == 6]
        await process.logs.close()

    asyncio.run(story())


def test_a_reader_of_the_view_begins_at_a_time() -> None:
    async def story() -> None:
        process, log, room = await world()
        for number in range(6):
            process.clock.advance(1000)
            log.append([keyed(f"k{number % 4}", b"%d" % number)])
            await process.settle()
        now_ms = process.clock.now_ms()
        room.start()
        await ended(process, room)
        await log.trim()
        begin = await room.begin_of(ReaderStart(EARLIEST, now_ms - 2000))
        runs = await room.view().read(begin, 1 << 20, 1)
        assert bytes(split_entry(runs[0].entries[0]).payload) == b"3"
        assert await room.begin_of(ReaderStart(LATEST, None)) == LATEST
        assert await room.begin_of(ReaderStart(EARLIEST, now_ms + 1)) == log.next_position(log.last_position)
        await process.logs.close()

    asyncio.run(story())


def batch(count: int, **more: Any) -> bytes:
    plain = build_batch((pb.SingleMessageMetadata(partition_key="k"), b"x") for _ in range(count))
    fields = {"num_messages_in_batch": count, "uncompressed_size": len(plain), **more}
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    return build_entry(metadata, compress(fields.get("compression", pb.NONE), plain))


def test_entries_that_lie_or_are_damaged_stay_and_compaction_goes_on() -> None:
    """Written before such things were refused: none of them is dropped, none stops the others' compaction."""

    async def story() -> None:
        process, log, room = await world()
        odd = [
            batch(3, num_messages_in_batch=-1),
            batch(3, num_messages_in_batch=1 << 30),
            batch(3, compression=pb.ZLIB, uncompressed_size=1),
            batch(3, compression=pb.ZSTD, uncompressed_size=(1 << 32) - 1),
            b"\x00\x00\x00\x02\xff\xff no metadata",
        ]
        log.append([keyed("a", b"old"), *odd, keyed("a", b"new")])
        await process.settle()
        room.start()
        await ended(process, room)
        assert room.status is CompactionStatus.SUCCESS, room.error
        runs = await room.view().read(EARLIEST, 1 << 20, 100)
        left = [entry for run in runs for entry in run.entries]
        assert left == [*odd, keyed("a", b"new")]
        await process.logs.close()

    asyncio.run(story())


@pytest.mark.parametrize("indexes", [[-1], [1 << 30], [0, 2, 3]])
def test_indexes_that_a_producer_made_up_take_no_memory(indexes: list[int]) -> None:
    entry = batch(3, compacted_batch_indexes=indexes)
    assert left_in_batch(entry, 3) == (0b101 if 0 in indexes else 0)
    assert left_in_batch(b"\x00\x00\x00\x02\xff\xff", 1) == 0


def test_a_large_batch_is_opened_beside_the_loop() -> None:
    async def story() -> None:
        process, log, room = await world()
        plain = build_batch([(pb.SingleMessageMetadata(partition_key="k"), bytes(HEAVY_BYTES))])
        metadata = pb.MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=1,
            num_messages_in_batch=1,
            uncompressed_size=len(plain),
            compression=pb.ZLIB,
        )
        large = build_entry(metadata, compress(pb.ZLIB, plain))
        assert is_heavy(large)
        log.append([keyed("k", b"old"), large])
        await process.settle()
        await room._compact()
        runs = await room.view().read(EARLIEST, 1 << 20, 100)
        assert [entry for run in runs for entry in run.entries] == [large]
        await process.logs.close()

    asyncio.run(story())


def test_the_log_may_be_trimmed_only_after_what_was_compacted_is_named_durably() -> None:
    """Were the mark-delete to move with the name, the log would be trimmed for a ledger that is not found."""

    async def story() -> None:
        process, log, room = await world()
        for number in range(4):
            log.append([keyed("k", b"%d" % number)])
            await process.settle()
        before = log.cursors[COMPACTION_CURSOR].mark_delete
        create = process.ledgers.create

        async def nothing_for_cursors(listener: Any, tags: Any, copies: Any = None) -> Any:
            if "pulsar/cursor" in tags and tags["component"] == COMPONENT:
                raise write_error()
            return await create(listener, tags, copies)

        process.ledgers.create = nothing_for_cursors  # type: ignore[method-assign]  # the name is not stored
        room.start()
        await ended(process, room)
        assert room.status is CompactionStatus.ERROR
        assert log.cursors[COMPACTION_CURSOR].mark_delete == before
        process.ledgers.create = create  # type: ignore[method-assign]
        await process.logs.close()

    asyncio.run(story())
