"""The bench's own encoder against a real protobuf library and a plain checksum."""

from __future__ import annotations

import google_crc32c
import pytest
from bench import frames as f
from bench import protobuf as pb

from magnetar.wire import pulsar_pb2


def decode(frame: bytes) -> tuple[pulsar_pb2.BaseCommand, bytes]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    size = int.from_bytes(frame[4:8], "big")
    command = pulsar_pb2.BaseCommand()
    command.ParseFromString(frame[8 : 8 + size])
    return command, frame[8 + size :]


def decode_entry(entry: bytes) -> tuple[pulsar_pb2.MessageMetadata, bytes]:
    assert entry[:2] == b"\x0e\x01"
    assert int.from_bytes(entry[2:6], "big") == google_crc32c.value(entry[6:])
    size = int.from_bytes(entry[6:10], "big")
    metadata = pulsar_pb2.MessageMetadata()
    metadata.ParseFromString(entry[10 : 10 + size])
    return metadata, entry[10 + size :]


def split(block: f.SendBlock) -> list[bytes]:
    data = bytes(block.view)
    return [data[i : i + block.frame_length] for i in range(0, len(data), block.frame_length)]


@pytest.mark.parametrize("first", [f.FIRST_SEQUENCE_ID, 123_456_789, f.SEQUENCE_ID_END - 5])
def test_every_single_message_is_numbered_and_has_the_checksum_of_its_bytes(first: int) -> None:
    template = f.SendTemplate(producer_id=7, producer_name="standalone-0-1", message=b"x" * 100)
    block = f.SendBlock(template, 5)
    for publish_time_ms in (1_790_000_000_000, 1_790_000_000_128):
        block.number(first, publish_time_ms)
        for i, frame in enumerate(split(block)):
            command, entry = decode(frame)
            assert command.type == pulsar_pb2.BaseCommand.SEND
            assert (command.send.producer_id, command.send.sequence_id) == (7, first + i)
            assert command.send.num_messages == 1
            metadata, payload = decode_entry(entry)
            assert metadata.producer_name == "standalone-0-1"
            assert metadata.sequence_id == first + i
            assert metadata.publish_time == publish_time_ms
            assert not metadata.HasField("num_messages_in_batch")
            assert payload == b"x" * 100


def test_every_batch_carries_its_first_and_last_sequence_id() -> None:
    template = f.SendTemplate(producer_id=1, producer_name="p", message=b"abc", messages_per_entry=10)
    block = f.SendBlock(template, 3)
    block.number(f.FIRST_SEQUENCE_ID + 1000, 1_790_000_000_000)
    for i, frame in enumerate(split(block)):
        first = f.FIRST_SEQUENCE_ID + 1000 + i * 10
        command, entry = decode(frame)
        assert (command.send.sequence_id, command.send.highest_sequence_id) == (first, first + 9)
        assert command.send.num_messages == 10
        metadata, payload = decode_entry(entry)
        assert (metadata.sequence_id, metadata.highest_sequence_id) == (first, first + 9)
        assert metadata.num_messages_in_batch == 10
        at = 0
        for _ in range(10):
            size = int.from_bytes(payload[at : at + 4], "big")
            single = pulsar_pb2.SingleMessageMetadata()
            single.ParseFromString(payload[at + 4 : at + 4 + size])
            at += 4 + size + single.payload_size
            assert payload[at - single.payload_size : at] == b"abc"
        assert at == len(payload)


def test_a_block_is_renumbered_without_a_trace_of_the_numbers_before() -> None:
    template = f.SendTemplate(producer_id=1, producer_name="p", message=b"abc", messages_per_entry=2)
    once, twice = f.SendBlock(template, 4), f.SendBlock(template, 4)
    once.number(200_000_000, 1_790_000_000_000)
    twice.number(f.FIRST_SEQUENCE_ID, 1_712_345_678_901)
    twice.number(200_000_000, 1_790_000_000_000)
    assert bytes(once.view) == bytes(twice.view)


def test_the_sequence_id_lies_where_the_template_says() -> None:
    template = f.SendTemplate(producer_id=1, producer_name="p", message=b"abc")
    block = f.SendBlock(template, 1)
    block.number(77_777_777, 1_790_000_000_000)
    value, _ = pb.read_varint(block.view, block.frame_length - template.sequence_from_end)
    assert value == 77_777_777


@pytest.mark.parametrize("first", [0, f.FIRST_SEQUENCE_ID - 1, f.SEQUENCE_ID_END - 1])
def test_numbers_of_another_width_are_refused(first: int) -> None:
    block = f.SendBlock(f.SendTemplate(producer_id=1, producer_name="p", message=b""), 2)
    with pytest.raises(ValueError, match="four-byte range"):
        block.number(first, 1_790_000_000_000)


def test_commands_are_what_a_protobuf_library_reads() -> None:
    body = pb.field(1, 1) + pb.field(2, 1) + pb.field(3, pb.field(1, 5) + pb.field(2, 6))
    command, rest = decode(f.command_frame(f.ACK, body))
    assert rest == b""
    assert command.ack.ack_type == pulsar_pb2.CommandAck.Cumulative
    assert (command.ack.message_id[0].ledgerId, command.ack.message_id[0].entryId) == (5, 6)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 63), (1 << 64) - 1])
def test_varints_come_back(value: int) -> None:
    assert pb.read_varint(pb.varint(value), 0) == (value, len(pb.varint(value)))


def test_a_number_that_fits_no_varint_is_refused() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        pb.varint(1 << 64)
    with pytest.raises(ValueError, match="longer than ten"):
        pb.read_varint(b"\xff" * 11, 0)


def test_a_field_that_ends_beyond_its_message_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        pb.decode(b"\x0a\x05ab")
    with pytest.raises(ValueError, match="wire type"):
        pb.decode(b"\x0b")


def test_negative_numbers_are_what_a_protobuf_library_reads() -> None:
    position = pulsar_pb2.MessageIdData()
    position.ParseFromString(pb.field(1, 1) + pb.field(2, 2) + pb.field(3, -1))
    assert position.partition == -1
