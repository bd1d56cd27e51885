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


def test_a_receipt_that_only_resembles_the_one_before_is_not_cut_like_it() -> None:
    good = encode_receipts(1, [130, 131], None, 5, 300)
    receipt = encode_receipts(1, [132], None, 5, 302)
    for at in (receipt.index(b"\x08\x01\x10") + 3, receipt.index(b"\x08\x05\x10") + 3):
        # Clears the bit that says that the id goes on: what follows makes no sense then.
        bad = bytearray(receipt)
        assert bad[at] & 0x80
        bad[at] &= 0x7F
        data = good + bytes(bad)
        with pytest.raises(FrameError) as caught:
            ClientParser(1 << 20).parse(data, len(data))
        (run,) = caught.value.events
        assert isinstance(run, ReceiptRun)
        assert run.sequence_ids == [130, 131]


def test_messages_in_a_run_are_checked_one_by_one() -> None:
    def frame(entry_id: int) -> bytearray:
        message_id = commands.message_id_data(Position(5, entry_id))
        return bytearray(message(ENTRY, pb.CommandMessage(consumer_id=1, message_id=message_id)))

    damaged = frame(302)
    damaged[-1] ^= 1
    stream = bytes(frame(300) + frame(301) + damaged + frame(303) + frame(304))
    events, consumed = ClientParser(1 << 20).parse(stream, len(stream))
    assert consumed == len(stream)
    messages = [event for event in events if isinstance(event, MessageEvent)]
    assert [event.position.entry_id for event in messages] == [300, 301, 302, 303, 304]
    assert [event.intact for event in messages] == [True, True, False, True, True]

    # Clears the bit that says that the entry id goes on: what follows makes no sense then.
    other = frame(302)
    other[other.index(b"\x08\x05\x10") + 3] &= 0x7F
    stream = bytes(frame(300) + frame(301) + other)
    with pytest.raises(FrameError) as caught:
        ClientParser(1 << 20).parse(stream, len(stream))
    assert len(caught.value.events) == 2
