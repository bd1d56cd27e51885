"""The parser of client connections: whole, byte by byte, with trailing data, damaged, hostile."""

from __future__ import annotations

import struct

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.server import SendRun, ServerEvent, ServerParser

FRAME_MAX = 64 * 1024


def entry_of(payload: bytes = b"hello", sequence_id: int = 0, *, checksum: bool = True) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000
    ).SerializeToString()
    rest = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, crc32c(rest)) + rest if checksum else rest


def send_frame(send: pb.CommandSend, entry: bytes) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


def send(producer_id: int, sequence_id: int, payload: bytes = b"hello") -> bytes:
    return send_frame(
        pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id), entry_of(payload, sequence_id)
    )


def parse(data: bytes, frame_max: int = FRAME_MAX) -> list[ServerEvent]:
    events, consumed = ServerParser(frame_max).parse(bytearray(data), len(data))
    assert consumed == len(data)
    return events


def only_run(data: bytes) -> SendRun:
    (event,) = parse(data)
    assert isinstance(event, SendRun)
    return event


@pytest.mark.parametrize("first", [0, 120, 16_380, 2_097_100, (1 << 62) - 100])
def test_plain_sends_become_one_run_across_every_length_of_sequence_id(first: int) -> None:
    run = only_run(b"".join(send(7, first + i, b"x" * (i % 50)) for i in range(300)))
    assert run.producer_id == 7
    assert run.sequence_ids == list(range(first, first + 300))
    assert run.entries == [entry_of(b"x" * (i % 50), first + i) for i in range(300)]
    assert run.size_bytes == sum(map(len, run.entries))
    assert (run.counts, run.highest_sequence_ids, run.bad, run.chunked) == (None, None, None, False)
