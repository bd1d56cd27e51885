"""A connection's conversation: whole, byte by byte, and damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.client.deliveries import UNKNOWN, DeliveryReader
from magnetar.client.errors import PayloadError
from magnetar.client.session import ClientSession
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import CommandEvent
from magnetar.wire.messages import MessageEncoder
from magnetar.wire.payload import build_entry
from magnetar.wire.server import ServerParser


def entry_of(number: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    return build_entry(metadata, b"value %d" % number)


def frames_of(run: EntryRun, *, consumer: int = 1, partition: int = -1, with_index: bool = True) -> bytes:
    out: list[bytes] = []
    encoder = MessageEncoder(consumer, partition, broker_metadata=with_index)
    encoder.encode(run, 0, len(run.entries), out)
    return b"".join(out)


def fed(data: bytes, step: int) -> tuple[ClientSession, DeliveryReader]:
    """A session that got the bytes in pieces of `step`."""
    session = ClientSession("test")
    reader = DeliveryReader("t")
    session.deliver_to(1, reader)
    buffer = b""
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        buffer = buffer[session.receive(buffer, len(buffer)) :]
    assert buffer == b""
    return session, reader


@pytest.mark.parametrize("step", [1, 7, 100, 10_000_000])
@pytest.mark.parametrize("partition", [-1, 5])
def test_entries_in_any_pieces(step: int, partition: int) -> None:
    # Entry ids that grow by a byte on the way, and other commands in between.
    run = EntryRun(300, 120, [entry_of(number) for number in range(20)], None, 1000, 77)
    later = EntryRun(301, 0, [entry_of(number) for number in range(3)], [5, 1, 2], 1020, 78)
    data = frames_of(run, partition=partition) + commands.PING + frames_of(later, partition=partition)
    session, reader = fed(data, step)
    columns = reader.fetch()
    assert columns.entries == run.entries + later.entries
    assert [columns.position(row) for row in (0, 19, 20)] == [
        Position(300, 120),
        Position(300, 139),
        Position(301, 0),
    ]
    assert columns.last_indexes == [*range(1000, 1020), 1024, 1025, 1027]
    assert columns.broker_times_ms == [77] * 20 + [78] * 3
    assert columns.size_bytes == sum(map(len, columns.entries))
    assert session.outgoing == [commands.PONG]
    assert len(reader.fetch()) == 0


def test_without_broker_metadata() -> None:
    run = EntryRun(3, 0, [entry_of(number) for number in range(5)], None, 0, 0)
    _, reader = fed(frames_of(run, with_index=False), 10_000)
    assert reader.columns.last_indexes == [UNKNOWN] * 5
    assert reader.columns.entries == run.entries


def test_entries_of_other_consumers_are_dropped() -> None:
    run = EntryRun(3, 0, [entry_of(0)], None, 0, 0)
    _, reader = fed(frames_of(run, consumer=2) + frames_of(run), 10_000)
    assert len(reader.columns) == 1


@pytest.mark.parametrize("row", [0, 3])
def test_damaged_entries_are_never_handed_on(row: int) -> None:
    entries = [entry_of(number) for number in range(5)]
    entries[row] = entries[row][:-1] + b"!"
    data = frames_of(EntryRun(3, 0, entries, None, 0, 0))
    with pytest.raises(PayloadError, match=f"entry 3:{row} of t does not match its checksum"):
        fed(data, 10_000)


def test_answers_are_found_by_their_request() -> None:
    session = ClientSession("test")
    first, second = session.next_request_id(), session.next_request_id()
    data = commands.success(second) + commands.error(first, pb.ServerError.ConsumerBusy, "busy")
    assert session.receive(data, len(data)) == len(data)
    answer = session.reply(first)
    assert answer is not None
    assert answer.error.message == "busy"
    assert session.reply(first) is None
    assert session.reply(second) is not None


def test_the_handshake_and_its_refusal() -> None:
    session = ClientSession("test")
    data = commands.connected("s", 21, 123_456, pb.FeatureFlags())
    session.receive(data, len(data))
    assert session.connected() is not None
    assert session.message_bytes_max == 123_456
    refused = ClientSession("test")
    data = commands.error((1 << 64) - 1, pb.ServerError.AuthenticationError, "no token")
    refused.receive(data, len(data))
    answer = refused.connected()
    assert answer is not None
    assert answer.error.message == "no token"


def receipt_frames() -> Iterator[bytes]:
    for sequence_id, entry_id in ((4, 9), (5, -1)):
        message_id = pb.MessageIdData(
            ledgerId=7 if entry_id >= 0 else (1 << 64) - 1, entryId=entry_id & ((1 << 64) - 1)
        )
        body = pb.CommandSendReceipt(producer_id=1, sequence_id=sequence_id, message_id=message_id)
        command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=body).SerializeToString()
        yield (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def test_receipts_and_duplicates() -> None:
    session = ClientSession("test")
    for frame in receipt_frames():
        session.receive(frame, len(frame))
    run = session.receipts(1)
    assert run is not None
    assert (run.sequence_ids, run.ledger_ids, run.entry_ids) == ([4, 5], [7, -1], [9, -1])
    assert session.receipts(1) is None
    data = commands.send_error(1, 6, pb.ServerError.ChecksumError, "bad") + commands.close_producer(1)
    session.receive(data, len(data))
    error = session.send_error(1)
    assert error is not None
    assert error.sequence_id == 6
    assert session.is_producer_closed(1)
    assert not session.is_consumer_closed(1)


def test_challenges_are_answered_with_credentials_of_that_moment() -> None:
    session = ClientSession("test")
    frame = commands.auth_challenge("broker", 21, "token", b"PulsarAuthRefresh")
    assert session.receive(frame, len(frame)) == len(frame)
    assert (session.challenged, session.outgoing) == (True, [])
    session.respond("token", b"new")
    assert not session.challenged
    (answer,) = session.outgoing
    events, _ = ServerParser(1 << 20).parse(bytearray(answer), len(answer))
    (event,) = events
    assert isinstance(event, CommandEvent)
    response = event.command.authResponse.response
    assert (response.auth_method_name, response.auth_data) == ("token", b"new")
