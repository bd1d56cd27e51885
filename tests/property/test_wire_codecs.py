"""Hand-written codecs against protobuf, and parsers against any bytes."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import ack_of_command, decode_ack
from magnetar.wire.checksum import crc32c
from magnetar.wire.client import ClientParser, MessageEvent, encode_ack, encode_flow, encode_send
from magnetar.wire.commands import PING
from magnetar.wire.frames import FrameError, parse_command, read_varint, varint
from magnetar.wire.messages import MessageEncoder
from magnetar.wire.partition_keys import plain_partition_key
from magnetar.wire.payload import EntryError, build_entry, split_batch, split_entry
from magnetar.wire.receipts import encode_receipts
from magnetar.wire.sends import decode_send_in_txn
from magnetar.wire.server import AckEvent, SendRun, ServerParser

U64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
U63 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1))
ENTRY = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"payload")
FRAME_MAX = 1 << 16


@given(U64)
def test_varints(value: int) -> None:
    data = varint(value)
    assert data == pb.BrokerEntryMetadata(index=value).SerializeToString()[1:]
    if value < 1 << 63:
        assert read_varint(data, 0, len(data)) == (value, len(data))
        assert read_varint(data, 0, len(data) - 1)[1] == len(data)
    else:
        assert read_varint(data, 0, len(data)) == (0, len(data) + 1)


ACKED = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.lists(
            st.tuples(st.integers(5, 6), st.integers(0, 300) | st.integers(16_000, 17_000)), max_size=40
        ),
        st.integers(1, 30),
        st.booleans(),
    ),
    max_size=20,
)


@given(ACKED)
def test_acks_come_back_position_by_position(
    rows: list[tuple[int, list[tuple[int, int]], int, bool]],
) -> None:
    data = b""
    expected: list[tuple[int, Position]] = []
    for consumer_id, ids, repeats, together in rows:
        positions = [Position(ledger, entry + i) for ledger, entry in ids for i in range(repeats)]
        for part in [positions] if together else [[position] for position in positions]:
            data += encode_ack(consumer_id, part)
        expected += [(consumer_id, position) for position in positions]
    events, consumed = ServerParser(FRAME_MAX).parse(bytearray(data), len(data))
    assert consumed == len(data)
    found = []
    for event in events:
        assert isinstance(event, AckEvent)
        found += [(event.consumer_id, position) for position in event.positions]
        assert all(type(position) is Position for position in event.positions)
    assert found == expected


METADATA = st.fixed_dictionaries(
    {
        "producer_name": st.text(max_size=3) | st.just("n" * 200),
        "sequence_id": U63,
        "publish_time": U63,
    },
    optional={
        "partition_key": st.text(max_size=4) | st.just("k" * 200),
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=4),
        "compression": st.integers(0, 4),
        "uncompressed_size": st.integers(0, 1 << 31),
        "num_messages_in_batch": st.integers(0, 1 << 20),
        "event_time": U63,
        "deliver_at_time": st.integers(-5, 1 << 40),
        "replicate_to": st.lists(st.text(max_size=2), max_size=1),
        "schema_version": st.binary(max_size=4),
    },
)


@given(METADATA, st.binary(max_size=10), st.integers(0, 12))
def test_a_partition_key_found_by_hand_is_what_protobuf_finds(
    fields: dict[str, Any], payload: bytes, cut: int
) -> None:
    metadata = pb.MessageMetadata(**fields)
    entry = build_entry(metadata, payload)
    found = plain_partition_key(entry)
    if found is not None:
        assert metadata.HasField("partition_key")
        assert not metadata.HasField("ordering_key")
        assert not metadata.partition_key_b64_encoded
        assert found == metadata.partition_key.encode()
    assert (
        (found is not None)
        or fields.keys()
        != {
            "producer_name",
            "sequence_id",
            "publish_time",
            "partition_key",
        }
        or len(entry) > 150
    )
    plain_partition_key(entry[:cut])


@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd_to_be_looked_at_for_a_partition_key(data: bytes) -> None:
    plain_partition_key(data)
    plain_partition_key(b"\x0e\x01" + bytes(7) + data)


SENDS = st.lists(
    st.tuples(
        st.integers(0, 2),
        U64,
        st.one_of(st.just(1), st.integers(1, (1 << 31) - 1)),
        st.one_of(st.none(), U64),
        st.booleans(),
        st.binary(max_size=40),
        st.booleans(),
    ),
    max_size=30,
)


@given(SENDS)
def test_sends_come_back_row_by_row(
    rows: list[tuple[int, int, int, int | None, bool, bytes, bool]],
) -> None:
    data = b""
    expected: dict[int, list[tuple[int, int, int | None, bytes, bool]]] = {}
    for producer_id, sequence_id, count, highest, chunk, payload, good in rows:
        entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), payload)
        if not good:
            entry = entry[:2] + bytes((entry[2] ^ 1,)) + entry[3:]
        data += encode_send(producer_id, sequence_id, count, entry, highest, is_chunk=chunk)
        known = highest if highest is not None and highest >= sequence_id else None
        expected.setdefault(producer_id, []).append((sequence_id, count, known, entry, good))
    events, consumed = ServerParser(FRAME_MAX).parse(bytearray(data), len(data))
    assert consumed == len(data)
    assert [event.producer_id for event in events if isinstance(event, SendRun)] == list(expected)
    for event in events:
        assert isinstance(event, SendRun)
        want = expected[event.producer_id]
        assert event.sequence_ids == [row[0] for row in want]
        assert (event.counts or [1] * len(want)) == [row[1] for row in want]
        if event.highest_sequence_ids is None:
            assert all(row[2] is None for row in want)
        else:
            assert event.highest_sequence_ids == [row[0] if row[2] is None else row[2] for row in want]
        assert event.entries == [row[3] for row in want]
        assert (event.bad or []) == [index for index, row in enumerate(want) if not row[4]]


@given(st.integers(0, 1 << 40), st.lists(st.binary(max_size=30), max_size=300))
def test_long_runs_of_one_producer(first: int, payloads: list[bytes]) -> None:
    entries = [struct.pack(">HI", 0x0E01, crc32c(bytes(4) + p)) + bytes(4) + p for p in payloads]
    data = b"".join(encode_send(1, first + i, 1, entry) for i, entry in enumerate(entries))
    events, _ = ServerParser(FRAME_MAX).parse(data, len(data))
    found = [event for event in events if isinstance(event, SendRun)]
    assert [entry for run in found for entry in run.entries] == entries
    assert [s for run in found for s in run.sequence_ids] == list(range(first, first + len(entries)))


SENDS_IN_TXN = st.builds(
    pb.CommandSend,
    producer_id=U64,
    sequence_id=U64,
    num_messages=st.one_of(st.none(), st.integers(-1, 300)),
    txnid_least_bits=st.one_of(st.none(), U64),
    txnid_most_bits=st.one_of(st.none(), U64),
    highest_sequence_id=st.one_of(st.none(), U64),
    is_chunk=st.one_of(st.none(), st.booleans()),
    marker=st.one_of(st.none(), st.none(), st.booleans()),
)


def says(send: pb.CommandSend) -> tuple[Any, ...]:
    highest = send.highest_sequence_id if send.HasField("highest_sequence_id") else None
    txn = (send.txnid_most_bits, send.txnid_least_bits)
    return send.producer_id, send.sequence_id, send.num_messages, highest, send.is_chunk, txn


@given(SENDS_IN_TXN)
def test_sends_in_transactions_mean_what_protobuf_says(send: pb.CommandSend) -> None:
    data = send.SerializeToString()
    found = decode_send_in_txn(data, 0, len(data))
    if found is not None:
        assert found == says(send)
        assert not send.HasField("marker")
    numbers = [send.producer_id, send.sequence_id, send.txnid_least_bits, send.txnid_most_bits]
    usual = send.HasField("txnid_least_bits") and send.HasField("txnid_most_bits")
    usual = usual and not send.HasField("marker") and send.num_messages > 0
    if usual and max(*numbers, send.highest_sequence_id) < 1 << 63:
        assert found is not None


@given(st.binary(max_size=40))
def test_any_bytes_as_a_send_in_a_transaction(data: bytes) -> None:
    found = decode_send_in_txn(data, 0, len(data))
    if found is not None:
        assert found == says(pb.CommandSend.FromString(data))


MESSAGE_IDS = st.builds(
    pb.MessageIdData,
    ledgerId=U64,
    entryId=U64,
    partition=st.one_of(st.none(), st.integers(-1, 500)),
    batch_index=st.one_of(st.none(), st.integers(-1, 500)),
    ack_set=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=2),
    batch_size=st.one_of(st.none(), st.integers(0, 500)),
)
ACKS = st.builds(
    pb.CommandAck,
    consumer_id=U64,
    ack_type=st.sampled_from([pb.CommandAck.Individual, pb.CommandAck.Cumulative]),
    message_id=st.lists(MESSAGE_IDS, max_size=4),
    validation_error=st.one_of(st.none(), st.just(pb.CommandAck.ChecksumMismatch)),
    txnid_least_bits=st.one_of(st.none(), U64),
    request_id=st.one_of(st.none(), U64),
)


@given(ACKS)
def test_acks_mean_what_protobuf_says(ack: pb.CommandAck) -> None:
    data = ack.SerializeToString()
    found = decode_ack(data, 0, len(data))
    if found is not None:
        assert repr(found) == repr(ack_of_command(ack))
        assert (found.validation_error, found.txn) == (None, None)


@given(st.binary(max_size=60))
def test_any_bytes_as_an_ack(data: bytes) -> None:
    found = decode_ack(data, 0, len(data))
    if found is not None:
        assert repr(found) == repr(ack_of_command(pb.CommandAck.FromString(data)))


@given(U63, st.lists(st.builds(Position, U63, U63), max_size=5), st.booleans(), st.one_of(st.none(), U63))
def test_acks_that_we_write(
    consumer_id: int, positions: list[Position], cumulative: bool, request_id: int | None
) -> None:
    data = encode_ack(consumer_id, positions, cumulative=cumulative, request_id=request_id)
    (event,), _ = ServerParser(FRAME_MAX).parse(data, len(data))
    _, command = parse_command(data[8:])
    assert repr(event) == repr(ack_of_command(command.ack))


@given(
    st.lists(U64, min_size=1, max_size=10),
    st.booleans(),
    U63,
    st.integers(0, 1 << 50),
    st.integers(-1, 300),
)
def test_receipts_are_what_protobuf_would_write(
    sequence_ids: list[int], with_highest: bool, ledger_id: int, first_entry: int, partition: int
) -> None:
    data = encode_receipts(
        7, sequence_ids, sequence_ids if with_highest else None, ledger_id, first_entry, partition
    )
    expected = b""
    for row, sequence_id in enumerate(sequence_ids):
        receipt = pb.CommandSendReceipt(producer_id=7, sequence_id=sequence_id)
        receipt.message_id.ledgerId = ledger_id
        receipt.message_id.entryId = first_entry + row
        if partition >= 0:
            receipt.message_id.partition = partition
        if with_highest:
            receipt.highest_sequence_id = sequence_id
        command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt).SerializeToString()
        expected += struct.pack(">II", 4 + len(command), len(command)) + command
    assert data == expected


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), U63, st.integers(0, 1 << 50), st.booleans())
def test_messages_come_back(sizes: list[int], ledger_id: int, first_entry: int, broker: bool) -> None:
    entries = [
        build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), bytes(s))
        for s in sizes
    ]
    run = EntryRun(ledger_id, first_entry, entries, None, 10, 5)
    out: list[bytes] = []
    written = MessageEncoder(3, broker_metadata=broker).encode(run, 0, len(entries), out)
    data = b"".join(out)
    events, consumed = ClientParser(1 << 20).parse(data, len(data))
    assert consumed == written == len(data)
    for row, event in enumerate(events):
        assert isinstance(event, MessageEvent)
        assert event.position == (ledger_id, first_entry + row)
        assert event.entry == entries[row]
        assert event.broker_index == (10 + row if broker else None)


GOOD = [
    PING,
    encode_send(1, 5, 1, ENTRY),
    encode_send(1, 6, 1, ENTRY),
    encode_send(1, 7, 1, ENTRY),
    encode_send(1, 300, 4, ENTRY, 303),
    encode_ack(1, [Position(1, 2), Position(300, 400)], request_id=4),
    encode_flow(1, 1000),
    encode_receipts(1, [1, 2], None, 5, 6, 7),
]
_run = EntryRun(5, 6, [ENTRY, ENTRY], None, 0, 5)
_out: list[bytes] = []
MessageEncoder(1, broker_metadata=True).encode(_run, 0, 2, _out)
GOOD.append(b"".join(_out))


def survive(data: bytes) -> None:
    """Neither parser may raise anything but FrameError, nor take more than there is."""
    for parser in (ServerParser(FRAME_MAX), ClientParser(FRAME_MAX)):
        try:
            _, consumed = parser.parse(bytearray(data), len(data))
        except FrameError:
            continue
        else:
            assert 0 <= consumed <= len(data)
            assert len(data) - consumed < 4 or parser.needed > len(data) - consumed


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    survive(data)


@given(st.binary(max_size=80), st.integers(0, 90), st.binary(max_size=30))
def test_any_bytes_in_a_frame(body: bytes, command_bytes: int, rest: bytes) -> None:
    survive(struct.pack(">II", 4 + len(body) + len(rest), command_bytes) + body + rest + PING)


@given(
    st.lists(st.sampled_from(GOOD), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_good_frames_with_damaged_bytes(frames: list[bytes], damage: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(frames))
    for at, mask in damage:
        data[at % len(data)] ^= mask
    survive(bytes(data))


@given(st.binary(max_size=100), st.integers(0, 5))
def test_any_bytes_as_entry_and_batch(data: bytes, count: int) -> None:
    try:
        parts = split_entry(data)
    except EntryError:
        pass
    else:
        assert len(parts.metadata) + len(parts.payload) + (4 if parts.checksum is None else 10) == len(data)
    with contextlib.suppress(EntryError):
        assert len(list(split_batch(data, count))) == count
