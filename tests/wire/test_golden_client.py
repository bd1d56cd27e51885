"""Bytes that the official Python client 3.13.0 sent (golden/record.py says how they were made)."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from magnetar.base.ids import EARLIEST, Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import position_of
from magnetar.wire.payload import parse_metadata, split_batch, split_entry
from magnetar.wire.server import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent, ServerParser

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = sorted(path.stem for path in GOLDEN.glob("*.bin"))


def events_of(scenario: str) -> list[ServerEvent]:
    data = (GOLDEN / f"{scenario}.bin").read_bytes()
    events, consumed = ServerParser(6 << 20).parse(data, len(data))
    assert consumed == len(data)
    return events


def sent(scenario: str) -> SendRun:
    (run,) = [event for event in events_of(scenario) if isinstance(event, SendRun)]
    assert run.bad is None
    return run


def command(scenario: str, kind: int) -> pb.BaseCommand:
    return next(e.command for e in events_of(scenario) if isinstance(e, CommandEvent) and e.type == kind)


def test_all_scenarios_are_there() -> None:
    assert SCENARIOS == [
        "batch_index_acks",
        "batched",
        "chunked",
        "consumed",
        "cumulative",
        "reader",
        "unbatched",
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_handshake(scenario: str) -> None:
    first = events_of(scenario)[0]
    assert isinstance(first, CommandEvent)
    connect = first.command.connect
    assert connect.client_version == "Pulsar-CPP-v4.2.0"
    assert connect.protocol_version == 20
    assert connect.feature_flags.supports_broker_entry_metadata


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_cut_anywhere_the_events_are_the_same(scenario: str) -> None:
    data = (GOLDEN / f"{scenario}.bin").read_bytes()
    whole = [event for event in events_of(scenario) if isinstance(event, CommandEvent)]
    for piece in (1, 13, 1000):
        parser = ServerParser(6 << 20)
        buffer = bytearray()
        found: list[ServerEvent] = []
        for at in range(0, len(data), piece):
            buffer += data[at : at + piece]
            events, consumed = parser.parse(buffer, len(buffer))
            del buffer[:consumed]
            found += events
        assert not buffer
        assert [repr(e) for e in found if isinstance(e, CommandEvent)] == [repr(e) for e in whole]
        entries = [entry for event in found if isinstance(event, SendRun) for entry in event.entries]
        assert entries == sent(scenario).entries


def test_unbatched() -> None:
    run = sent("unbatched")
    assert run.sequence_ids == list(range(200))
    assert (run.counts, run.highest_sequence_ids, run.chunked) == (None, None, False)
    for number, entry in enumerate(run.entries):
        checksum, metadata, payload = split_entry(entry)
        assert checksum is not None
        assert payload == f"message {number}".encode()
        assert parse_metadata(metadata).sequence_id == number


def test_batched_and_compressed() -> None:
    run = sent("batched")
    assert run.counts == [10, 10, 10, 10]
    assert run.sequence_ids == [0, 10, 20, 30]
    # This client says the first sequence id of a batch and not the last one.
    assert run.highest_sequence_ids is None
    number = 0
    for entry in run.entries:
        _, data, payload = split_entry(entry)
        metadata = parse_metadata(data)
        assert (metadata.compression, metadata.num_messages_in_batch) == (pb.ZLIB, 10)
        plain = zlib.decompress(payload)
        assert len(plain) == metadata.uncompressed_size
        for single, message in split_batch(plain, 10):
            assert message == f"message {number}".encode()
            assert single.partition_key == f"k{number % 3}"
            number += 1
    assert number == 40


def test_chunked() -> None:
    run = sent("chunked")
    assert run.chunked
    assert run.sequence_ids == [0, 0, 0]
    parts = [split_entry(entry) for entry in run.entries]
    assert b"".join(bytes(part.payload) for part in parts) == bytes(range(250)) * 40
    assert [parse_metadata(part.metadata).chunk_id for part in parts] == [0, 1, 2]


def test_consumer() -> None:
    events = events_of("consumed")
    permits = [event.permits for event in events if isinstance(event, FlowEvent)]
    assert permits[0] == 50
    assert set(permits[1:]) == {25}
    acked = [p for event in events if isinstance(event, AckEvent) for p in event.positions]
    assert acked == [Position(7, i) for i in range(200) if i % 10 != 3]
    subscribe = command("consumed", pb.BaseCommand.SUBSCRIBE).subscribe
    assert (subscribe.subType, subscribe.initialPosition) == (subscribe.Shared, subscribe.Earliest)
    assert not command(
        "consumed", pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    ).redeliverUnacknowledgedMessages.message_ids
    by_id, by_time = [
        event.command.seek
        for event in events
        if isinstance(event, CommandEvent) and event.type == pb.BaseCommand.SEEK
    ]
    assert position_of(by_id.message_id) == EARLIEST
    assert by_time.message_publish_time == 1_700_000_000_000
    assert command("consumed", pb.BaseCommand.UNSUBSCRIBE).unsubscribe.consumer_id == 0


@pytest.mark.parametrize(("scenario", "entry"), [("cumulative", 99), ("reader", 199)])
def test_cumulative_acks(scenario: str, entry: int) -> None:
    (ack,) = [event for event in events_of(scenario) if isinstance(event, AckEvent)]
    assert (ack.cumulative, ack.positions, ack.batch_acks) == (True, [Position(7, entry)], None)


def test_acks_inside_batches() -> None:
    acks = [event for event in events_of("batch_index_acks") if isinstance(event, AckEvent)]
    assert all(not ack.positions for ack in acks)
    found = {row for ack in acks for row in ack.batch_acks or ()}
    # Ten messages, of which the second and the eighth are acknowledged: their bits are clear.
    assert {(position, words) for position, words, _ in found} == {
        (Position(7, i), (0b1111111111 & ~(1 << 1) & ~(1 << 7),)) for i in range(4)
    }
