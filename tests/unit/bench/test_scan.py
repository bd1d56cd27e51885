"""Receipts and messages are counted only when each is the one that was due."""

from __future__ import annotations

import pytest
from bench import frames as f
from bench.scan import BrokerAnswerError, MessageScanner, ReceiptScanner, refuse

from magnetar.wire import pulsar_pb2


def frame(command: pulsar_pb2.BaseCommand, rest: bytes = b"") -> bytes:
    data = command.SerializeToString()
    return (len(data) + 4 + len(rest)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + rest


def receipt(sequence_id: int, entry_id: int, ledger_id: int = 3, producer_id: int = 1) -> bytes:
    command = pulsar_pb2.BaseCommand(type=pulsar_pb2.BaseCommand.SEND_RECEIPT)
    command.send_receipt.producer_id = producer_id
    command.send_receipt.sequence_id = sequence_id
    command.send_receipt.message_id.ledgerId = ledger_id
    command.send_receipt.message_id.entryId = entry_id
    return frame(command)


def receipts(count: int, *, step: int = 1, first: int = f.FIRST_SEQUENCE_ID) -> bytes:
    return b"".join(receipt(first + i * step, i) for i in range(count))


def ping() -> bytes:
    command = pulsar_pb2.BaseCommand(type=pulsar_pb2.BaseCommand.PING)
    command.ping.SetInParent()
    return frame(command)


def feed_in_pieces(scanner: ReceiptScanner | MessageScanner, data: bytes, piece: int) -> None:
    buffer = b""
    for at in range(0, len(data), piece):
        buffer += data[at : at + piece]
        buffer = buffer[scanner.feed(memoryview(buffer)) :]
    assert not buffer


@pytest.mark.parametrize("piece", [1, 37, 1000, 1 << 20])
@pytest.mark.parametrize("step", [1, 100])
def test_receipts_are_counted_however_they_are_cut(piece: int, step: int) -> None:
    # The entry id grows from one byte to two in between, so the frames change their length.
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=step)
    feed_in_pieces(scanner, receipts(400, step=step), piece)
    assert scanner.received == 400
    assert scanner.expected == f.FIRST_SEQUENCE_ID + 400 * step


@pytest.mark.parametrize("gap_at", [0, 1, 5, 50, 199, 300])
def test_a_missing_receipt_is_found(gap_at: int) -> None:
    one = len(receipt(f.FIRST_SEQUENCE_ID, 0))
    data = b"".join(receipt(f.FIRST_SEQUENCE_ID + i, 1) for i in range(400) if i != gap_at)
    assert len(data) == 399 * one
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=1)
    with pytest.raises(BrokerAnswerError, match=f"receipt {f.FIRST_SEQUENCE_ID + gap_at + 1} where"):
        scanner.feed(memoryview(data))


def test_receipts_of_another_producer_and_of_duplicates_are_errors() -> None:
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=1)
    with pytest.raises(BrokerAnswerError, match="producer 2"):
        scanner.feed(memoryview(receipt(f.FIRST_SEQUENCE_ID, 0, producer_id=2)))
    with pytest.raises(BrokerAnswerError, match="duplicate"):
        scanner.feed(memoryview(receipt(f.FIRST_SEQUENCE_ID, (1 << 64) - 1, ledger_id=(1 << 64) - 1)))


def test_a_sequence_id_of_another_width_is_an_error() -> None:
    # Receipts of equal length in which the width moved from the sequence id to the entry id.
    good = [receipt(f.FIRST_SEQUENCE_ID + i, 1) for i in range(20)]
    bad = [receipt(f.FIRST_SEQUENCE_ID - 1, 200) for _ in range(20)]
    assert len(good[0]) == len(bad[0])
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=1)
    with pytest.raises(BrokerAnswerError):
        scanner.feed(memoryview(b"".join(good + bad)))


def test_other_commands_between_receipts_are_handed_out() -> None:
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=1)
    data = receipts(30) + ping() + receipts(30, first=f.FIRST_SEQUENCE_ID + 30)
    assert scanner.feed(memoryview(data)) == len(data)
    assert scanner.received == 60
    assert [command.kind for command in scanner.commands] == [f.PING]


def test_errors_of_the_broker_end_a_measurement() -> None:
    command = pulsar_pb2.BaseCommand(type=pulsar_pb2.BaseCommand.SEND_ERROR)
    command.send_error.producer_id = 1
    command.send_error.sequence_id = 5
    command.send_error.error = pulsar_pb2.ChecksumError
    command.send_error.message = "no good"
    scanner = ReceiptScanner(producer_id=1, messages_per_entry=1)
    scanner.feed(memoryview(frame(command)))
    with pytest.raises(BrokerAnswerError, match="no good"):
        refuse(scanner.commands[0])


def messages(count: int, *, per_entry: int = 1) -> tuple[f.SendTemplate, list[bytes]]:
    template = f.SendTemplate(
        producer_id=1, producer_name="p", message=b"m" * 50, messages_per_entry=per_entry
    )
    block = f.SendBlock(template, count)
    block.number(f.FIRST_SEQUENCE_ID, 1_790_000_000_000)
    out = []
    for i in range(count):
        row = bytes(block.view[i * block.frame_length : (i + 1) * block.frame_length])
        entry = row[8 + int.from_bytes(row[4:8], "big") :]
        command = pulsar_pb2.BaseCommand(type=pulsar_pb2.BaseCommand.MESSAGE)
        command.message.consumer_id = 1
        command.message.message_id.ledgerId = 9
        command.message.message_id.entryId = i
        out.append(frame(command, entry))
    return template, out


@pytest.mark.parametrize("piece", [1, 333, 1 << 20])
@pytest.mark.parametrize("per_entry", [1, 7])
def test_messages_are_counted_however_they_are_cut(piece: int, per_entry: int) -> None:
    template, data = messages(200, per_entry=per_entry)
    scanner = MessageScanner(template)
    feed_in_pieces(scanner, b"".join(data), piece)
    assert scanner.received == 200
    assert scanner.checksums_verified >= 2
    last = pulsar_pb2.MessageIdData()
    last.ParseFromString(scanner.last_message_id)
    assert last.entryId == 199


@pytest.mark.parametrize("gap_at", [0, 1, 100])
def test_a_missing_message_is_found(gap_at: int) -> None:
    template, data = messages(200)
    del data[gap_at]
    with pytest.raises(BrokerAnswerError, match="where"):
        MessageScanner(template).feed(memoryview(b"".join(data)))


@pytest.mark.parametrize("at", [0, -1])
def test_a_damaged_message_is_found_at_both_ends_of_what_was_read(at: int) -> None:
    template, data = messages(20)
    data[at] = data[at][:-1] + b"!"
    with pytest.raises(BrokerAnswerError, match="checksum"):
        MessageScanner(template).feed(memoryview(b"".join(data)))


def test_other_commands_between_messages_are_handed_out() -> None:
    template, data = messages(20)
    data.insert(10, ping())
    scanner = MessageScanner(template)
    scanner.feed(memoryview(b"".join(data)))
    assert scanner.received == 20
    assert [command.kind for command in scanner.commands] == [f.PING]
