"""Compaction against a dictionary: publish, batches, tombstones, compact, crash, read."""

from __future__ import annotations

import asyncio
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.managed_logs import Process
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.compaction.codec import decode, encode
from magnetar.broker.compaction.job import CompactionStatus
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.compaction.survivors import PLAIN_BYTES_MAX, Survivors
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.topic.batches import open_batch
from magnetar.client.compression import compress
from magnetar.managedlog.log import ManagedLog
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry, is_batch, parse_metadata, split_entry

TOPIC = TopicName.parse("persistent://public/default/t")
KEYS = st.sampled_from(["a", "b", "c", "", None])
MESSAGES = st.tuples(KEYS, st.booleans())
"""A key, and whether the message takes it away."""
BATCHES = st.lists(MESSAGES, min_size=1, max_size=4)
ENTRIES = st.one_of(
    st.tuples(st.just("single"), st.lists(MESSAGES, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["batch", "zlib"]), BATCHES),
)
DEEDS: st.SearchStrategy[tuple[str, list[object]]] = st.tuples(
    st.sampled_from(["compact", "crash", "crash inside"]), st.just([])
)
STEPS = st.lists(st.one_of(ENTRIES, DEEDS), max_size=25)
Drawn = list[tuple[str | None, bool]]


def entry_of(kind: str, drawn: Drawn, bodies: list[bytes]) -> tuple[bytes, int]:
    """An entry and how many messages it has."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if kind == "single":
        key, _ = drawn[0]
        if key is not None:
            metadata.partition_key = key
        return build_entry(metadata, bodies[0]), 1
    messages = []
    for (key, _), body in zip(drawn, bodies, strict=True):
        single = pb.SingleMessageMetadata(payload_size=len(body))
        if key is not None:
            single.partition_key = key
        messages.append((single, body))
    metadata.num_messages_in_batch = len(messages)
    plain = build_batch(messages)
    metadata.uncompressed_size = len(plain)
    if kind == "zlib":
        metadata.compression = pb.ZLIB
    return build_entry(metadata, compress(metadata.compression, plain)), len(messages)


def messages_of(entry: bytes) -> list[tuple[str | None, bytes]]:
    parts = split_entry(entry)
    metadata = parse_metadata(parts.metadata)
    if not is_batch(metadata):
        key = metadata.partition_key if metadata.HasField("partition_key") else None
        return [(key, bytes(parts.payload))]
    singles = open_batch(metadata, parts.payload, PLAIN_BYTES_MAX)
    assert singles is not None
    return [
        (single.partition_key if single.HasField("partition_key") else None, body)
        for single, body in singles
        if not single.compacted_out
    ]


def room_of(process: Process, log: ManagedLog) -> TopicCompaction:
    return TopicCompaction(TOPIC, log, clock=process.clock, spawn=process.spawn, closed=lambda: False)


async def read(room: TopicCompaction) -> list[tuple[str | None, bytes]]:
    """Everything that a compacted reader gets from the beginning."""
    view, position = room.view(), EARLIEST
    found: list[tuple[str | None, bytes]] = []
    while runs := await view.read(position, 200, 3):
        for run in runs:
            assert Position(run.ledger_id, run.first_entry) >= position
            position = Position(run.ledger_id, run.last_entry + 1)
            for entry in run.entries:
                found += messages_of(entry)
    return found


def latest(found: list[tuple[str | None, bytes]]) -> dict[str, bytes]:
    model: dict[str, bytes] = {}
    for key, body in found:
        if key is None:
            continue
        if body:
            model[key] = body
        else:
            model.pop(key, None)
    return model


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_compacted_topic_has_the_last_value_of_each_key(steps: list[tuple[str, Drawn]]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, Drawn]]) -> None:
    process = Process(entries_max_per_ledger=3)
    log, _ = await process.open()
    # As a threshold does: what has no subscription is trimmed otherwise.
    await log.open_cursor(COMPACTION_CURSOR, initial="earliest")
    room = room_of(process, log)
    await room.load()
    model: dict[str, bytes] = {}
    for number, (kind, drawn) in enumerate([*steps, ("compact", [])]):
        if kind in ("crash", "crash inside"):
            await process.settle()
            if kind == "crash inside":
                room.start()
                for _ in range(number % 23):
                    await asyncio.sleep(0)
            process = await process.crash()
            log, _ = await process.open()
            room = room_of(process, log)
            await room.load()
            cursor = log.cursors.get(COMPACTION_CURSOR)
            assert cursor is None or cursor.ledgers is not None
            if cursor is not None and cursor.ledgers is not None:
                assert len(cursor.ledgers.ids) == (room.stored is not None), "a ledger leaked"
        elif kind == "compact":
            await process.settle()
            room.start()
            while room.status is CompactionStatus.RUNNING:
                await process.settle()
            assert room.status is CompactionStatus.SUCCESS, room.error
            await log.trim()
            found = await read(room)
            assert len(found) == len(model)
        else:
            bodies = [b"" if gone else b"%d-%d" % (number, i) for i, (_, gone) in enumerate(drawn)]
            model = {**model}
            for (key, _), body in zip(drawn, bodies, strict=True):
                if key is None:
                    continue
                if body:
                    model[key] = body
                else:
                    model.pop(key, None)
            stored, count = entry_of(kind, drawn, bodies)
            log.append([stored], [count])
            await process.settle()
        assert latest(await read(room)) == model
    await process.logs.delete(log.name)
    # A crash between making a ledger and naming it leaves an empty one.
    assert not any(ledger.runs for ledger in process.ledgers.ledgers.values())


@given(st.binary(max_size=50), st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(-1, 100))
def test_entries_of_a_compacted_ledger_round_trip(
    body: bytes, ledger: int, entry: int, partition: int
) -> None:
    data = encode(Position(ledger, entry), partition, body)
    assert decode(data) == (Position(ledger, entry), body)
    assert data[-len(body) - 4 :] == struct.pack(">I", len(body)) + body


def test_pieces_of_a_chunked_message_share_its_fate() -> None:
    def piece(uuid: str, number: int, of: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, partition_key="k", uuid=uuid
        )
        metadata.num_chunks_from_msg, metadata.chunk_id = of, number
        return build_entry(metadata, b"x")

    entries = [
        piece("old", 0, 2),
        piece("old", 1, 2),
        piece("new", 0, 2),
        piece("new", 1, 2),
        piece("open", 0, 2),
    ]
    survivors = Survivors()
    for i, entry in enumerate(entries):
        survivors.see(Position(1, i), entry)
    kept = [survivors.keep(Position(1, i), entry) is not None for i, entry in enumerate(entries)]
    assert kept == [False, False, True, True, True]


def test_an_encrypted_batch_is_kept_whole() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=2)
    metadata.encryption_keys.add(key="k", value=b"v")
    entry = build_entry(metadata, b"secret")
    survivors = Survivors()
    survivors.see(Position(1, 0), entry)
    assert survivors.keep(Position(1, 0), entry) == entry


def test_what_takes_a_key_away_stays_behind_a_batch_that_is_kept_whole() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=2)
    metadata.encryption_keys.add(key="k", value=b"v")
    gone, _ = entry_of("single", [("a", True)], [b""])
    entries = [gone, build_entry(metadata, b"perhaps a message of a"), gone]
    survivors = Survivors()
    for i, entry in enumerate(entries):
        survivors.see(Position(1, i), entry)
    kept = [survivors.keep(Position(1, i), entry) is not None for i, entry in enumerate(entries)]
    assert kept == [False, True, True]


def test_messages_without_a_key_are_kept_when_told() -> None:
    entry, _ = entry_of("single", [(None, False)], [b"x"])
    for retain in (False, True):
        survivors = Survivors(retain_null_key=retain)
        survivors.see(Position(1, 0), entry)
        assert (survivors.keep(Position(1, 0), entry) is not None) is retain
