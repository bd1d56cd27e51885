"""Harnesses of what arrives over sockets: Pulsar's and BookKeeper's protocols."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from fuzzing.harness import BrokenRuleError, Harness, described, require
from magnetar.base.ids import ConsumerId, LedgerId, Position, ProducerId
from magnetar.broker.topic.batches import open_batch
from magnetar.broker.topic.topic_claims import refusals
from magnetar.client.compression import compress, compression_type
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import ack_of_command, decode_ack, encode_ack, encode_flow
from magnetar.wire.bookkeeper.bookie import BookieParser, encode_response
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.requests import AddRun, BatchRead, Read
from magnetar.wire.bookkeeper.responses import Added, LacRead, ReadDone
from magnetar.wire.bookkeeper.status import Status
from magnetar.wire.client import ClientParser
from magnetar.wire.events import LongList, SendRun
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.long_lists import parts
from magnetar.wire.payload import (
    EntryError,
    build_batch,
    build_entry,
    checksum_matches,
    parse_metadata,
    split_batch,
    split_broker_metadata,
    split_entry,
)
from magnetar.wire.sends import decode_send, encode_send
from magnetar.wire.server import ServerParser

FRAME_BYTES_MAX: Final = 4_096
PLAIN_BYTES_MAX: Final = 1 << 20
COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")

_Parser = ServerParser | ClientParser | BookieParser | BookieClientParser


def _parse_whole_and_cut(make: Callable[[], _Parser], data: bytes) -> object:
    """The events of all bytes at once. In two reads they must consume the same, or be refused too."""
    outcomes = []
    events: object = None
    for cut in (0, len(data) // 2):
        parser, taken = make(), 0
        try:
            for stop in sorted({cut, len(data)}):
                events, consumed = parser.parse(data[taken:stop], stop - taken)
                require(0 <= consumed <= stop - taken, f"{consumed} bytes of {stop - taken} consumed")
                taken += consumed
            outcomes.append(taken)
        except FrameError:
            outcomes.append(-1)
        if not cut:
            seen = described(events) if outcomes[-1] >= 0 else "refused"
    require(outcomes[0] == outcomes[1], f"whole and in two pieces: {outcomes}")
    return seen


def _frames(data: bytes) -> object:
    seen = _parse_whole_and_cut(partial(ServerParser, FRAME_BYTES_MAX), data)
    events, _ = ServerParser(FRAME_BYTES_MAX).parse(data, len(data)) if seen != "refused" else ([], 0)
    for event in events:
        if isinstance(event, SendRun):
            refused = refusals(event)
            require(all(0 <= row < len(event.entries) for row in refused), "a row that is not there")
        elif isinstance(event, LongList):
            _decode_parts(event)
    return seen


def _decode_parts(event: LongList) -> None:
    """A long list is decoded as a whole, or refused."""
    try:
        for _ in parts(event):
            pass
    except FrameError:
        return


def _send(data: bytes) -> object:
    ours = decode_send(data, 0, len(data))
    if ours is None:
        return None
    producer_id, sequence_id, count, highest, chunked, _ = ours
    theirs = pb.CommandSend()
    try:
        theirs.MergeFromString(data)
    except DecodeError:
        raise BrokenRuleError("protobuf does not read what we read") from None
    said = theirs.highest_sequence_id if theirs.HasField("highest_sequence_id") else None
    require(
        (producer_id, sequence_id, count, highest, chunked)
        == (theirs.producer_id, theirs.sequence_id, theirs.num_messages, said, theirs.is_chunk),
        f"ours {ours}, protobuf's {theirs}",
    )
    return ours


def _ack(data: bytes) -> object:
    ours = decode_ack(data, 0, len(data))
    if ours is None:
        return None
    theirs = pb.CommandAck()
    try:
        theirs.MergeFromString(data)
    except DecodeError:
        raise BrokenRuleError("protobuf does not read what we read") from None
    same = described(ack_of_command(theirs))
    require(described(ours) == same, f"ours {described(ours)}, protobuf's {same}")
    return same


def _metadata(data: bytes) -> object:
    return described(parse_metadata(data))


def _single(data: bytes) -> object:
    """A batch of what its first byte says: single-message metadata and sizes."""
    found = list(split_batch(data[1:], data[0] if data else 0))
    require(sum(len(payload) for _, payload in found) <= len(data), "payloads larger than the batch")
    return described(found)


def _entry(data: bytes) -> object:
    _, at = split_broker_metadata(data)
    entry = data[at:]
    parts = split_entry(entry)
    require(len(parts.metadata) + len(parts.payload) <= len(entry), "parts larger than the entry")
    return checksum_matches(entry), described(parse_metadata(parts.metadata))


def _batch(kind: pb.CompressionType, data: bytes) -> object:
    """First the number of messages and the size that metadata claim, 2 and 4 bytes."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, compression=kind)
    metadata.num_messages_in_batch = int.from_bytes(data[:2], "big")
    metadata.uncompressed_size = int.from_bytes(data[2:6], "big")
    found = open_batch(metadata, memoryview(data)[6:], PLAIN_BYTES_MAX)
    if found is not None:
        size = sum(len(payload) for _, payload in found)
        require(size <= max(PLAIN_BYTES_MAX, len(data)), f"{size} bytes were opened")
    return described(found)


def bookkeeper_events(data: bytes) -> object:
    """What a bookie reads."""
    return _parse_whole_and_cut(partial(BookieParser, FRAME_BYTES_MAX), data)


def _sound_metadata() -> pb.MessageMetadata:
    return pb.MessageMetadata(
        producer_name="p",
        sequence_id=7,
        publish_time=1_700_000_000_000,
        partition_key="key",
        properties=[pb.KeyValue(key="colour", value="red")],
    )


def _sound_batch() -> bytes:
    single = pb.SingleMessageMetadata(partition_key="k", properties=[pb.KeyValue(key="a", value="b")])
    return build_batch([(single, b"one"), (pb.SingleMessageMetadata(null_value=True), b"")])


def _batch_seeds(kind: int) -> list[bytes]:
    plain = _sound_batch()
    zeros = bytes(200_000)
    return [
        b"\0\2" + len(plain).to_bytes(4, "big") + compress(kind, plain),
        b"\0\2" + len(zeros).to_bytes(4, "big") + compress(kind, zeros)[:3_000],
        b"\xff\xff\xff\xff\xff\xff" + compress(kind, plain),
    ]


def _frame_seeds() -> list[bytes]:
    entry = build_entry(_sound_metadata(), b"payload")
    sends = b"".join(encode_send(ProducerId(1), number, 1, entry) for number in range(3))
    acks = b"".join(
        encode_ack(ConsumerId(1), [Position(LedgerId(3), number), Position(LedgerId(3), number + 1)])
        for number in range(3)
    )
    commands = (
        pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()),
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="c", protocol_version=20)
        ),
        pb.BaseCommand(
            type=pb.BaseCommand.SUBSCRIBE,
            subscribe=pb.CommandSubscribe(
                topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
            ),
        ),
    )
    return [
        sends,
        acks,
        encode_flow(ConsumerId(1), 100),
        *(encode_command(command) for command in commands),
        sends + acks,
    ]


def _client_seeds() -> list[bytes]:
    receipt = pb.CommandSendReceipt(
        producer_id=1, sequence_id=2, message_id=pb.MessageIdData(ledgerId=3, entryId=4)
    )
    message = pb.CommandMessage(consumer_id=1, message_id=pb.MessageIdData(ledgerId=3, entryId=4))
    frames = [
        encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)),
        encode_command(pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message)),
        encode_command(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())),
    ]
    return [*frames, b"".join(frames)]


def _command_bytes(frame: bytes) -> bytes:
    """What stands in the command's own field of a frame: tag and length are cut off."""
    command = pb.BaseCommand.FromString(frame[8 : 8 + int.from_bytes(frame[4:8], "big")])
    field = command.send if command.HasField("send") else command.ack
    return field.SerializeToString()


def _send_seeds() -> list[bytes]:
    entry = build_entry(_sound_metadata(), b"payload")
    return [
        _command_bytes(encode_send(ProducerId(number), sequence_id, count, entry))
        for number, sequence_id, count in ((1, 2, 1), (300, 1 << 40, 9))
    ]


def _ack_seeds() -> list[bytes]:
    positions = [Position(LedgerId(3), number) for number in range(120, 140)]
    return [
        _command_bytes(encode_ack(ConsumerId(1), positions)),
        _command_bytes(encode_ack(ConsumerId(500), positions[:1])),
    ]


def _bookie_seeds(*, is_v2: bool) -> list[bytes]:
    key = bytes(range(20))
    run = AddRun(LedgerId(5), key)
    requests: list[AddRun | Read | BatchRead]
    run.entry_ids.append(9)
    run.entries.append(Digester(LedgerId(5), DigestType.CRC32C).seal(9, -1, 0, b"payload") + b"payload")
    requests = [run, Read(LedgerId(5), 9, 2), Read(LedgerId(5), -1, 3, fence=True, master_key=key)]
    if is_v2:
        requests.append(BatchRead(LedgerId(5), 0, 4, 1 << 20, 3))
    else:
        run.txn_ids = [1]
    packets = [b"".join(encode_request(request, is_v2=is_v2)) for request in requests]
    return [*packets, b"".join(packets), packets[0] * 20]


def _answer_seeds() -> list[bytes]:
    answers = (
        Added(LedgerId(5), Status.OK, [1, 2], [3, 4]),
        ReadDone(LedgerId(5), 9, Status.OK, 2, bytes(60), 8, 1),
        LacRead(LedgerId(5), Status.OK, 2, bytes(24), bytes(60)),
    )
    packets = [b"".join(encode_response(answer)) for answer in answers]
    return [*packets, b"".join(packets)]


HARNESSES: Final = (
    Harness(name="frames", run=_frames, refusals=(FrameError,), seeds=_frame_seeds),
    Harness(
        name="client-frames",
        run=lambda data: _parse_whole_and_cut(partial(ClientParser, FRAME_BYTES_MAX), data),
        refusals=(FrameError,),
        seeds=_client_seeds,
    ),
    Harness(name="send", run=_send, refusals=(FrameError,), seeds=_send_seeds, input_bytes_max=64),
    Harness(name="ack", run=_ack, refusals=(FrameError,), seeds=_ack_seeds, input_bytes_max=512),
    Harness(
        name="metadata",
        run=_metadata,
        refusals=(EntryError,),
        seeds=lambda: [_sound_metadata().SerializeToString()],
    ),
    Harness(
        name="single-metadata", run=_single, refusals=(EntryError,), seeds=lambda: [b"\2" + _sound_batch()]
    ),
    Harness(
        name="entry",
        run=_entry,
        refusals=(EntryError,),
        seeds=lambda: [build_entry(_sound_metadata(), b"payload")],
        words=(b"\x0e\x01", b"\x0e\x02"),
    ),
    *(
        Harness(
            name=f"batch-{name}",
            run=partial(_batch, compression_type(name)),
            refusals=(),
            seeds=partial(_batch_seeds, compression_type(name)),
            words=(b"\x28\xb5\x2f\xfd",),
        )
        for name in COMPRESSIONS
    ),
    *(
        Harness(
            name=f"bookkeeper-v{3 - is_v2}",
            run=bookkeeper_events,
            refusals=(FrameError,),
            seeds=partial(_bookie_seeds, is_v2=is_v2),
        )
        for is_v2 in (True, False)
    ),
    Harness(
        name="bookkeeper-client",
        run=lambda data: _parse_whole_and_cut(
            partial(BookieClientParser, is_v2=True, packet_bytes_max=FRAME_BYTES_MAX), data
        ),
        refusals=(FrameError,),
        seeds=lambda: [bytes(40), b"\0\0\0\x10" + bytes(16), b"\0\0\0\x18\0\1" + bytes(22)],
    ),
    Harness(
        name="bookkeeper-client-v3",
        run=lambda data: _parse_whole_and_cut(
            partial(BookieClientParser, is_v2=False, packet_bytes_max=FRAME_BYTES_MAX), data
        ),
        refusals=(FrameError,),
        seeds=_answer_seeds,
    ),
)
