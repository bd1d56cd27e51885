"""A read that brings one SEND of a known shape gives what it would give among other frames."""

from __future__ import annotations

import pytest

from magnetar.base.ids import ProducerId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import FrameError
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send, lone_send
from magnetar.wire.server import SendRun, ServerParser
from magnetar.wire.shapes import FrameShape

FRAME_MAX = 64 * 1024
FIRST = 200
PRODUCER = 40_000
MAGIC = b"\x0e\x01"
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


def send(
    sequence_id: int, count: int = 1, *, payload: bytes = b"hello", producer_id: int = PRODUCER
) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return encode_send(ProducerId(producer_id), sequence_id, count, build_entry(metadata, payload))


def fields(run: object) -> list[object]:
    assert isinstance(run, SendRun)
    return [getattr(run, name) for name in FIELDS]


def read(parser: ServerParser, data: bytes) -> list[list[object]]:
    events, consumed = parser.parse(bytearray(data) + bytearray(9), len(data))
    assert consumed == len(data)
    assert (parser.needed, parser.commands, parser.stopped) == (0, 0, False)
    return [fields(event) for event in events]


def outcome(parser: ServerParser, frame: bytes) -> list[list[object]] | str:
    try:
        return read(parser, frame)
    except FrameError as error:
        return str(error)


def with_entry(frame: bytes, entry: bytes) -> bytes:
    """The same command with another entry."""
    head = frame[4 : frame.index(MAGIC)]
    return (len(head) + len(entry)).to_bytes(4, "big") + head + entry


def flipped(frame: bytes, at: int, bits: int) -> bytes:
    return frame[:at] + bytes((frame[at] ^ bits,)) + frame[at + 1 :]


def sealed(metadata_bytes: int) -> bytes:
    """An entry whose checksum matches, and its metadata size perhaps not."""
    rest = metadata_bytes.to_bytes(4, "big") + b"metadata and payload"
    return MAGIC + crc32c(rest).to_bytes(4, "big") + rest


ALIKE = send(FIRST + 1)
LOW_AT = ALIKE.index(b"\x10", 15) + 1
FRAMES = {
    "alike": ALIKE,
    "larger": send(FIRST + 1, payload=b"x" * 9_000),
    "empty": send(FIRST + 1, payload=b""),
    "another high part": send(FIRST + 1_000),
    "one byte of id": send(100),
    "three messages": send(FIRST + 1, 3),
    "another producer": send(FIRST + 1, producer_id=PRODUCER + 1),
    "another producer of the same key": send(FIRST + 1, producer_id=PRODUCER + (1 << 14)),
    "damaged": flipped(ALIKE, len(ALIKE) - 1, 1),
    "an id that ends early": flipped(ALIKE, LOW_AT, 0x80),
    "metadata that fits": with_entry(ALIKE, sealed(20)),
    "metadata that does not fit": with_entry(ALIKE, sealed(21)),
    "no metadata size": with_entry(ALIKE, MAGIC + bytes(4)),
    "no checksum": with_entry(ALIKE, bytes(9)),
    "hardly an entry": with_entry(ALIKE, MAGIC + bytes(2)),
    "no entry": with_entry(ALIKE, b""),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("count", [1, 3])
def test_alone_in_its_read_it_is_what_it_is_for_a_parser_that_knows_no_shape(count: int, name: str) -> None:
    knows = ServerParser(FRAME_MAX)
    read(knows, send(FIRST, count))
    expected = outcome(ServerParser(FRAME_MAX), FRAMES[name])
    assert outcome(knows, FRAMES[name]) == expected
    if not isinstance(expected, str):
        later = send(FIRST + 2, count)
        assert read(knows, later) == read(ServerParser(FRAME_MAX), later)


@pytest.mark.parametrize("first", [5, FIRST, FIRST << 7])
@pytest.mark.parametrize("count", [1, 3])
def test_it_is_cut_out_in_one_step(first: int, count: int) -> None:
    frame = send(first, count)
    stop = frame.index(MAGIC)
    low_at = frame.index(b"\x10", 15) + 1
    shape = FrameShape(PRODUCER, first, frame, 0, low_at, stop, count)
    run = lone_send(shape, send(first + 1, count))
    assert run is not None
    assert [fields(run)] == read(ServerParser(FRAME_MAX), send(first + 1, count))
    assert lone_send(shape, send(first + 1, count) + b"x") is None


def test_of_a_frame_that_is_not_whole_nothing_is_taken_and_the_rest_of_the_next_one_stays() -> None:
    parser = ServerParser(FRAME_MAX)
    read(parser, send(FIRST))
    for size in range(len(ALIKE)):
        assert parser.parse(bytearray(ALIKE), size) == ([], 0)
    both = ALIKE + send(FIRST + 2)[:-1]
    events, consumed = parser.parse(bytearray(both), len(both))
    assert consumed == len(ALIKE)
    assert [fields(event) for event in events] == read(ServerParser(FRAME_MAX), ALIKE)
