"""The parser of connections to a broker, and what a client writes."""

from __future__ import annotations

import struct

import pytest

from magnetar.base.ids import Position
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientParser, CommandEvent, MessageEvent, ReceiptRun
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.payload import build_entry
from magnetar.wire.receipts import encode_receipts

ENTRY = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"payload")


def message(entry: bytes, body: pb.CommandMessage | None = None) -> bytes:
    body = body or pb.CommandMessage(consumer_id=1, message_id=commands.message_id_data(Position(5, 6)))
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=body).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


def only_message(data: bytes) -> MessageEvent:
    (event,), consumed = ClientParser(1 << 20).parse(data, len(data))
    assert isinstance(event, MessageEvent)
    assert consumed == len(data)
    return event


def test_a_message_as_apache_brokers_write_it() -> None:
    message_id = pb.MessageIdData(ledgerId=5, entryId=6, partition=-1)
    body = pb.CommandMessage(consumer_id=1, message_id=message_id, redelivery_count=0)
    event = only_message(message(ENTRY, body))
    assert (event.position, event.partition, event.redelivery_count) == (Position(5, 6), -1, 0)
    assert event.entry[event.payload_at :] == b"payload"
    assert event.intact


@pytest.mark.parametrize("entry", [b"", b"\x00", ENTRY[:-1] + b"x", ENTRY[:8], b"\x00\x00\x01\x00"])
def test_a_damaged_entry_is_an_event_and_not_the_end(entry: bytes) -> None:
    event = only_message(message(entry))
    assert not event.intact
    assert event.entry == entry


def test_damaged_broker_metadata_ends_the_connection() -> None:
    data = message(struct.pack(">HI", 0x0E02, 5) + b"\x08")
    with pytest.raises(FrameError):
        ClientParser(1 << 20).parse(data, len(data))


def test_byte_by_byte() -> None:
    stream = (
        commands.success(1)
        + encode_receipts(1, [126, 127, 128], None, 5, 126)
        + message(ENTRY)
        + encode_receipts(1, [1, 2], [3, 4], 5, 129)
        + commands.PING
    )
    parser = ClientParser(1 << 20)
    buffer = bytearray()
    found: list[object] = []
    for byte in stream:
        buffer.append(byte)
        events, consumed = parser.parse(buffer, len(buffer))
        del buffer[:consumed]
        found += events
    kinds = [CommandEvent, *[ReceiptRun] * 3, MessageEvent, *[ReceiptRun] * 2, CommandEvent]
    assert [type(event) for event in found] == kinds
    assert not buffer


def test_receipts_in_other_shapes() -> None:
    bare = pb.CommandSendReceipt(producer_id=1, sequence_id=2)
    chunked = pb.CommandSendReceipt(producer_id=1, sequence_id=3)
    chunked.message_id.CopyFrom(commands.message_id_data(Position(5, 6)))
    chunked.message_id.first_chunk_message_id.CopyFrom(commands.message_id_data(Position(5, 4)))
    data = b"".join(
        encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt))
        for receipt in (bare, chunked)
    )
    (run,), _ = ClientParser(1 << 20).parse(data, len(data))
    assert isinstance(run, ReceiptRun)
    assert (run.sequence_ids, run.ledger_ids, run.entry_ids) == ([2, 3], [-1, 5], [-1, 6])


@pytest.mark.parametrize(
    "data", [bytes(4), b"\xff" * 4, struct.pack(">II", 4, 1), struct.pack(">II", 6, 2) + b"\x08\x07"]
)
def test_hostile_frames(data: bytes) -> None:
    good = message(ENTRY)
    with pytest.raises(FrameError) as caught:
        ClientParser(1 << 20).parse(good + data, len(good + data))
    assert len(caught.value.events) == 1
