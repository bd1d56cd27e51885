"""A read that brings one SEND of a known shape gives what it would give among other frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import FrameError
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from magnetar.wire.server import SendRun, ServerParser

FRAME_MAX = 64 * 1024
FIRST = 200
FIELDS = (
    "producer_id",
    "sequence_ids",
    "highest_sequence_ids",
    "counts",
    "entries",
    "size_bytes",
    "bad",
    "out_of_range",
    "chunked",
    "txn",
)


def send(sequence_id: int, count: int = 1, payload: bytes = b"hello", producer_id: int = 300) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return encode_send(producer_id, sequence_id, count, build_entry(metadata, payload))


def fields(run: object) -> list[object]:
    assert isinstance(run, SendRun)
    return [getattr(run, name) for name in FIELDS]


def read(parser: ServerParser, data: bytes) -> list[list[object]]:
    events, consumed = parser.parse(bytearray(data) + bytearray(9), len(data))
    assert consumed == len(data)
    assert (parser.needed, parser.commands, parser.stopped) == (0, 0, False)
    return [fields(event) for event in events]


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "frame_of",
    [
        lambda count: send(FIRST + 1, count),
        lambda count: send(FIRST + 1, count, b"x" * 9_000),
        lambda count: send(FIRST + 1, count, b""),
        lambda count: send(FIRST + 1_000, count),
        lambda count: send(FIRST + 1, count, producer_id=301),
        lambda count: damaged(send(FIRST + 1, count)),
    ],
    ids=["alike", "larger", "empty", "another high part", "another producer", "damaged"],
)
def test_alone_in_its_read_it_is_the_same_run_as_in_a_parser_that_knows_no_shape(
    count: int, frame_of: Callable[[int], bytes]
) -> None:
    frame = frame_of(count)
    knows = ServerParser(FRAME_MAX)
    read(knows, send(FIRST, count))
    assert read(knows, frame) == read(ServerParser(FRAME_MAX), frame)
    assert read(knows, send(FIRST + 2, count)) == read(ServerParser(FRAME_MAX), send(FIRST + 2, count))


def test_of_a_frame_that_is_not_whole_nothing_is_taken_and_the_rest_of_the_next_one_stays() -> None:
    parser = ServerParser(FRAME_MAX)
    read(parser, send(FIRST))
    frame = send(FIRST + 1)
    for size in range(len(frame)):
        assert parser.parse(bytearray(frame), size) == ([], 0)
    both = frame + send(FIRST + 2)[:-1]
    events, consumed = parser.parse(bytearray(both), len(both))
    assert consumed == len(frame)
    assert [fields(event) for event in events] == read(ServerParser(FRAME_MAX), frame)


def test_metadata_longer_than_the_entry_is_refused_as_elsewhere() -> None:
    frame = bytearray(send(FIRST + 1))
    entry_at = frame.index(b"\x0e\x01")
    frame[entry_at + 6 : entry_at + 10] = (1 << 20).to_bytes(4, "big")
    parsers = ServerParser(FRAME_MAX), ServerParser(FRAME_MAX)
    read(parsers[0], send(FIRST))
    outcomes = []
    for parser in parsers:
        try:
            outcomes.append(read(parser, bytes(frame)))
        except FrameError as error:
            outcomes.append([[str(error)]])
    assert outcomes[0] == outcomes[1]
