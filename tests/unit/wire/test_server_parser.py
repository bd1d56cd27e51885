"""The parser of client connections: whole, byte by byte, with trailing data, damaged, hostile."""

from __future__ import annotations

import struct

import pytest

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.client import encode_ack, encode_flow, encode_send
from magnetar.wire.commands import PING, message_id_data
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.payload import build_entry
from magnetar.wire.server import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent, ServerParser
from magnetar.wire.shapes import SHAPES_MAX

FRAME_MAX = 64 * 1024


def entry_of(payload: bytes = b"hello", sequence_id: int = 0) -> bytes:
    return build_entry(
        pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000),
        payload,
    )


def send(producer_id: int, sequence_id: int, payload: bytes = b"hello") -> bytes:
    return encode_send(producer_id, sequence_id, 1, entry_of(payload, sequence_id))


def send_of(body: pb.CommandSend, entry: bytes) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=body).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


def frame_of(command: bytes, rest: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(command) + len(rest), len(command)) + command + rest


def parse(data: bytes, frame_max: int = FRAME_MAX) -> list[ServerEvent]:
    events, consumed = ServerParser(frame_max).parse(bytearray(data), len(data))
    assert consumed == len(data)
    return events


def only_run(data: bytes, frame_max: int = FRAME_MAX) -> SendRun:
    (event,) = parse(data, frame_max)
    assert isinstance(event, SendRun)
    return event


def refused(data: bytes, frame_max: int = FRAME_MAX) -> FrameError:
    with pytest.raises(FrameError) as caught:
        ServerParser(frame_max).parse(bytearray(data), len(data))
    return caught.value


class TestSend:
    @pytest.mark.parametrize("first", [0, 120, 16_380, 2_097_100, (1 << 62) - 100])
    def test_plain_sends_become_one_run_across_every_length_of_sequence_id(self, first: int) -> None:
        run = only_run(b"".join(send(7, first + i, b"x" * (i % 50)) for i in range(300)))
        assert run.producer_id == 7
        assert run.sequence_ids == list(range(first, first + 300))
        assert run.entries == [entry_of(b"x" * (i % 50), first + i) for i in range(300)]
        assert run.size_bytes == sum(map(len, run.entries))
        assert (run.counts, run.highest_sequence_ids, run.bad, run.chunked) == (None, None, None, False)

    def test_sequence_ids_may_jump_and_repeat(self) -> None:
        ids = [5, 6, 6, 300, 7, 131, 130, 1 << 40, 8]
        assert only_run(b"".join(send(1, i) for i in ids)).sequence_ids == ids

    def test_the_shape_outlives_the_call(self) -> None:
        parser = ServerParser(FRAME_MAX)
        for first in range(0, 600, 3):
            data = b"".join(send(1, i) for i in range(first, first + 3))
            (run,), consumed = parser.parse(data, len(data))
            assert isinstance(run, SendRun)
            assert (run.sequence_ids, consumed) == ([first, first + 1, first + 2], len(data))

    def test_producers_that_take_turns_get_one_run_each(self) -> None:
        runs = parse(b"".join(send(i % 3, i // 3) for i in range(30)))
        assert [run.producer_id for run in runs if isinstance(run, SendRun)] == [0, 1, 2]
        assert all(isinstance(run, SendRun) and run.sequence_ids == list(range(10)) for run in runs)

    def test_more_producers_than_shapes_are_kept_for(self) -> None:
        parser = ServerParser(FRAME_MAX)
        for number in range(3):
            for first in range(0, SHAPES_MAX + 400, 200):
                data = b"".join(send(first + i, number) for i in range(200))
                runs, _ = parser.parse(data, len(data))
                assert [(run.producer_id, run.sequence_ids) for run in runs if isinstance(run, SendRun)] == [
                    (first + i, [number]) for i in range(200)
                ]
        data = b"".join(send(99_999, i) for i in range(300))
        for _ in range(2):
            (run,), _ = parser.parse(data, len(data))
            assert isinstance(run, SendRun)
            assert run.sequence_ids == list(range(300))

    def test_acks_and_permits_do_not_split_a_run_but_commands_do(self) -> None:
        flow = encode_flow(1, 10)
        ack = encode_ack(1, [Position(1, 2)])
        assert [type(e) for e in parse(send(1, 0) + flow + send(1, 1) + ack + send(1, 2))] == [
            SendRun,
            FlowEvent,
            AckEvent,
        ]
        assert [type(e) for e in parse(send(1, 0) + PING + send(1, 1))] == [SendRun, CommandEvent, SendRun]

    def test_batches_and_plain_messages_in_one_run(self) -> None:
        run = only_run(
            send(1, 0)
            + send(1, 1)
            + send(1, 2)
            + encode_send(1, 3, 10, entry_of(), 12)
            + b"".join(send(1, 13 + i) for i in range(4))
            + encode_send(1, 17, 2, entry_of())
        )
        assert run.counts == [1, 1, 1, 10, 1, 1, 1, 1, 2]
        assert run.highest_sequence_ids == [0, 1, 2, 12, 13, 14, 15, 16, 17]

    @pytest.mark.parametrize("sizes", [[1] * 9, [100] * 9, [1, 1, 100, 100, 100, 7, 7, 1, 1]])
    def test_sizes_of_batches_without_a_highest_id(self, sizes: list[int]) -> None:
        frames = [
            send_of(pb.CommandSend(producer_id=1, sequence_id=i, num_messages=size), entry_of())
            for i, size in enumerate(sizes)
        ]
        run = only_run(send(1, 0) + b"".join(frames) + send(1, 9))
        assert run.sequence_ids == [0, *range(9), 9]
        assert run.counts == (None if set(sizes) == {1} else [1, *sizes, 1])

    def test_a_highest_id_below_the_own_one_is_no_statement(self) -> None:
        assert only_run(encode_send(1, 5, 1, entry_of(), 0)).highest_sequence_ids is None

    def test_chunks(self) -> None:
        run = only_run(b"".join(encode_send(1, 4, 1, entry_of(), is_chunk=True) for _ in range(3)))
        assert run.chunked
        assert run.sequence_ids == [4, 4, 4]

    @pytest.mark.parametrize("damaged", [(0,), (1,), (4, 9), tuple(range(12))])
    def test_rows_with_a_wrong_checksum_are_named(self, damaged: tuple[int, ...]) -> None:
        frames = [bytearray(send(1, i)) for i in range(12)]
        for row in damaged:
            frames[row][-1] ^= 1
        run = only_run(b"".join(frames))
        assert run.bad == list(damaged)
        assert run.sequence_ids == list(range(12))

    def test_damage_in_the_metadata_size_is_the_checksums_business(self) -> None:
        for row in range(5):
            frames = [bytearray(send(1, i)) for i in range(5)]
            at = frames[row].index(b"\x0e\x01")
            frames[row][at + 6] ^= 0x80
            assert only_run(b"".join(frames)).bad == [row]

    def test_entry_without_checksum(self) -> None:
        entry = entry_of()[6:]
        run = only_run(b"".join(encode_send(1, i, 1, entry) for i in range(5)) + send(1, 5))
        assert run.entries == [entry] * 5 + [entry_of(b"hello", 5)]
        assert run.bad is None

    @pytest.mark.parametrize("size", [16_000, 16_384, 17_000, 300_000])
    def test_large_entries_between_small_ones(self, size: int) -> None:
        payloads = [b"a", b"b", b"c", b"L" * size, b"d", b"L" * size, b"L" * size, b"e", b"f", b"g"]
        data = b"".join(send(1, i, payload) for i, payload in enumerate(payloads))
        run = only_run(data, 1 << 20)
        assert run.entries == [entry_of(payload, i) for i, payload in enumerate(payloads)]

    def test_more_small_frames_than_one_window_holds(self) -> None:
        data = b"".join(send(1, i, b"x" * 1000) for i in range(700))
        run = only_run(data)
        assert run.sequence_ids == list(range(700))
        assert run.entries[699] == entry_of(b"x" * 1000, 699)

    def test_entries_do_not_refer_to_the_buffer(self) -> None:
        frame = send(1, 0) + send(1, 1, b"y" * 20_000)
        buffer = bytearray(frame)
        (run,), _ = ServerParser(FRAME_MAX).parse(buffer, len(buffer))
        buffer[:] = bytes(len(buffer))
        buffer.extend(b"not exported any more")
        assert isinstance(run, SendRun)
        assert run.entries == [entry_of(b"hello", 0), entry_of(b"y" * 20_000, 1)]

    @pytest.mark.parametrize(
        "body",
        [
            pb.CommandSend(producer_id=1, sequence_id=2, marker=True),
            pb.CommandSend(producer_id=1, sequence_id=2, message_id=message_id_data(Position(1, 2))),
        ],
    )
    def test_what_a_run_cannot_say_comes_as_a_command(self, body: pb.CommandSend) -> None:
        (event,) = parse(send_of(body, entry_of()))
        assert isinstance(event, CommandEvent)
        assert (event.type, event.command.send) == (6, body)

    def test_frames_of_a_transaction_are_a_run_of_their_own(self) -> None:
        def of(sequence_id: int, most: int | None, least: int | None) -> bytes:
            body = pb.CommandSend(
                producer_id=1, sequence_id=sequence_id, txnid_most_bits=most, txnid_least_bits=least
            )
            return send_of(body, entry_of(sequence_id=sequence_id))

        before = send(1, 0) + send(1, 1) + of(2, 5, 6) + of(3, 5, 6) + of(4, 5, 7) + of(5, None, 8)
        events = parse(before + send(1, 6) + send(1, 7) + send(2, 0) + of(8, 5, 6))
        runs = [(run.producer_id, run.txn, run.sequence_ids) for run in events if isinstance(run, SendRun)]
        assert runs == [
            (1, None, [0, 1]),
            (1, (5, 6), [2, 3]),
            (1, (5, 7), [4]),
            (1, (0, 8), [5]),
            (1, None, [6, 7]),
            (2, None, [0]),
            (1, (5, 6), [8]),
        ]

    def test_unusual_but_legal_encodings(self) -> None:
        # Unknown field, fields out of order, a field twice (the last one counts), padded varint, ten bytes.
        commands = {
            b"\x08\x06\x32\x07\x08\x01\x10\x02\xa0\x06\x01": 2,
            b"\x08\x06\x32\x04\x10\x02\x08\x01": 2,
            b"\x32\x04\x08\x01\x10\x02\x08\x06": 2,
            b"\x08\x06\x32\x06\x08\x01\x10\x03\x10\x02": 2,
            b"\x08\x06\x32\x05\x08\x01\x10\x82\x00": 2,
            b"\x08\x06\x32\x0d\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": (1 << 64) - 1,
        }
        for command, sequence_id in commands.items():
            run = only_run(frame_of(command, entry_of()))
            assert (run.producer_id, run.sequence_ids) == (1, [sequence_id])
        run = only_run(
            b"".join(frame_of(command, entry_of()) for command in commands) + send(1, 9) + send(1, 10)
        )
        assert run.sequence_ids == [*commands.values(), 9, 10]

    @pytest.mark.parametrize("count", [0, -1, -(1 << 31)])
    def test_a_message_count_below_one_is_refused(self, count: int) -> None:
        body = pb.CommandSend(producer_id=1, sequence_id=2, num_messages=count)
        assert "messages" in refused(send_of(body, entry_of())).reason

    def test_no_entry_and_short_entries_are_refused(self) -> None:
        for entry in (b"", b"\x00", b"\x00\x00\x00", b"\x0e\x01\x00\x00\x00\x00", b"\x00\x00\x00\x01"):
            refused(encode_send(1, 2, 1, entry))
        assert only_run(encode_send(1, 2, 1, bytes(4))).entries == [bytes(4)]

    def test_metadata_beyond_the_frame_is_refused(self) -> None:
        good = entry_of()
        refused(encode_send(1, 2, 1, struct.pack(">I", len(good)) + good[10:]))
        rest = struct.pack(">I", len(good) - 9) + good[10:]
        entry = struct.pack(">HI", 0x0E01, crc32c(rest)) + rest
        refused(encode_send(1, 2, 1, entry))
        refused(send(1, 0) + send(1, 1) + send(1, 2) + encode_send(1, 3, 1, entry))

    def test_broker_metadata_from_a_client_is_refused(self) -> None:
        block = struct.pack(">HI", 0x0E02, 2) + b"\x08\x01"
        assert "broker metadata" in refused(encode_send(1, 2, 1, block + entry_of())).reason


class TestFraming:
    STREAM = (
        PING
        + b"".join(send(1, 120 + i) for i in range(12))
        + encode_ack(3, [Position(1, i) for i in range(3)])
        + encode_flow(3, 500)
        + b"".join(send(2, i, b"z" * 17_000) for i in range(3))
        + encode_send(1, 200, 5, entry_of(), 204)
        + PING
    )

    @staticmethod
    def rows(events: list[ServerEvent]) -> list[object]:
        """Events without what depends on how the stream was cut."""
        out: list[object] = []
        for event in events:
            if isinstance(event, SendRun):
                counts = event.counts or [1] * len(event.entries)
                out += zip(
                    [event.producer_id] * len(counts), event.sequence_ids, counts, event.entries, strict=True
                )
            elif isinstance(event, AckEvent):
                out += [(event.consumer_id, position) for position in event.positions]
            else:
                out.append(repr(event))
        return out

    def test_byte_by_byte(self) -> None:
        whole = self.rows(parse(self.STREAM))
        parser = ServerParser(FRAME_MAX)
        buffer = bytearray()
        found: list[ServerEvent] = []
        for byte in self.STREAM:
            buffer.append(byte)
            events, consumed = parser.parse(buffer, len(buffer))
            del buffer[:consumed]
            found += events
            if len(buffer) >= 4:
                assert parser.needed == 4 + struct.unpack_from(">I", buffer)[0]
            else:
                assert parser.needed == 0
        assert not buffer
        assert sorted(map(repr, self.rows(found))) == sorted(map(repr, whole))

    @pytest.mark.parametrize("piece", [7, 100, 1000, 20_000])
    def test_in_pieces(self, piece: int) -> None:
        parser = ServerParser(FRAME_MAX)
        buffer = bytearray()
        found: list[ServerEvent] = []
        for at in range(0, len(self.STREAM), piece):
            buffer += self.STREAM[at : at + piece]
            events, consumed = parser.parse(buffer, len(buffer))
            del buffer[:consumed]
            found += events
        assert not buffer
        assert sorted(map(repr, self.rows(found))) == sorted(map(repr, self.rows(parse(self.STREAM))))

    def test_bytes_behind_size_are_not_looked_at(self) -> None:
        frame = send(1, 0)
        events, consumed = ServerParser(FRAME_MAX).parse(bytearray(frame + b"\xff" * 100), len(frame))
        assert (len(events), consumed) == (1, len(frame))

    def test_frame_at_the_limit_and_beyond(self) -> None:
        frame = send(1, 0, b"x" * 200)
        assert only_run(frame, len(frame)).sequence_ids == [0]
        assert only_run(send(1, 0) + frame + send(1, 1), len(frame)).sequence_ids == [0, 0, 1]
        refused(frame, len(frame) - 1)
        refused(send(1, 0) + send(1, 1) + send(1, 2) + frame, len(frame) - 1)
        # Refused when its header is there, not when it has arrived.
        refused(struct.pack(">I", FRAME_MAX), FRAME_MAX)
        refused(b"\xff\xff\xff\xff")

    @pytest.mark.parametrize(
        "data",
        [
            bytes(4),
            struct.pack(">IB", 1, 0),
            struct.pack(">IHB", 3, 0, 0),
            struct.pack(">II", 4, 0),
            struct.pack(">II", 4, 1),
            struct.pack(">II", 4, 0xFFFFFFFF),
            struct.pack(">II", 20_004, 20_001) + bytes(20_000),
            frame_of(b"\x08"),
            frame_of(b"\xff" * 11),
            frame_of(b"\x08\x06"),
            frame_of(b"\x08\x06\x32\x00", entry_of()),
            frame_of(b"\x08\x06\x32\x02\x08\x01", entry_of()),
            frame_of(b"\x08\x06\x32\x08\x08\x01\x10\x02", entry_of()),
            frame_of(b"\x08\x06\x32\x04\x08\x01\x10\x82", entry_of()),
            frame_of(b"\x08\x06\x32\x04\x08\x81\x90\x82", entry_of()),
            frame_of(b"\x08\x0a\x52\x02\x08\x01"),
            frame_of(b"\x08\x0b\x5a\x02\x08\x01"),
            frame_of(b"\x08\x02\x12\x00"),
            frame_of(b"\x12\x03\x0a\x01x"),
            frame_of(b"GET / HTTP/1.1\r\n\r\n"),
        ],
    )
    def test_hostile_frames(self, data: bytes) -> None:
        refused(data)
        error = refused(send(1, 0) + send(1, 1) + send(1, 2) + data)
        (run,) = error.events
        assert isinstance(run, SendRun)
        assert (run.sequence_ids, run.size_bytes) == ([0, 1, 2], sum(map(len, run.entries)))

    @pytest.mark.parametrize("wrong", ["key", "value"])
    @pytest.mark.parametrize("where", ["metadata", "subscription_properties"])
    def test_properties_that_are_no_text(self, where: str, wrong: str) -> None:
        subscribe = pb.CommandSubscribe(
            topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
        )
        pairs = getattr(subscribe, where)
        pairs.add(key="good", value="good")
        pairs.add(**{"key": "good", "value": "good", wrong: "WRONG"})
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe)
        good = encode_command(command)
        (event,) = parse(good)
        assert isinstance(event, CommandEvent)
        refused(good.replace(b"WRONG", b"\xff\xfeABC"))

    def test_nested_too_deep(self) -> None:
        nested = b""
        for _ in range(500):
            size = len(nested)
            tag = b"\x3a" + (bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7)))
            nested = tag + nested
        refused(
            frame_of(b"\x08\x1c" + b"\xe2\x01" + bytes((len(nested) & 127 | 128, len(nested) >> 7)) + nested)
        )

    def test_unknown_command_types_keep_their_number(self) -> None:
        for kind in (1, 41, 70, 82, 100, 5000):
            command = b"\x08" + (bytes((kind,)) if kind < 128 else bytes((kind & 127 | 128, kind >> 7)))
            (event,) = parse(frame_of(command + b"\xb2\x04\x02\x08\x01"))
            assert isinstance(event, CommandEvent)
            assert event.type == kind


class TestAckAndFlow:
    def test_flow(self) -> None:
        (event,) = parse(encode_flow(1 << 40, 0xFFFFFFFF))
        assert isinstance(event, FlowEvent)
        assert (event.consumer_id, event.permits) == (1 << 40, 0xFFFFFFFF)

    def test_plain_acks_of_one_consumer_are_gathered(self) -> None:
        data = b"".join(encode_ack(1, [Position(5, i)]) for i in range(50))
        (event,) = parse(data + encode_ack(1, [Position(6, 0), Position(6, 1)]))
        assert isinstance(event, AckEvent)
        assert event.positions == [*(Position(5, i) for i in range(50)), Position(6, 0), Position(6, 1)]
        assert (event.cumulative, event.batch_acks, event.request_id) == (False, None, None)
        assert (event.validation_error, event.txn) == (None, None)

    def test_what_is_not_plain_stands_alone(self) -> None:
        one = encode_ack(1, [Position(5, 1)])
        frames = (
            encode_ack(1, [Position(5, 2)], cumulative=True),
            encode_ack(1, [Position(5, 3)], request_id=9),
            encode_ack(2, [Position(5, 4)]),
            PING,
        )
        for frame in frames:
            assert len(parse(one + frame + one)) == 3

    def test_ack_sets_come_as_unsigned_words(self) -> None:
        partial = message_id_data(Position(5, 1), batch_index=3)
        partial.ack_set.extend([-1, 0, 1 << 62, -(1 << 63)])
        partial.batch_size = 200
        whole = message_id_data(Position(5, 2), partition=4, batch_index=1)
        whole.batch_size = 2
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[partial, whole])
        (event,) = parse(encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack)))
        assert isinstance(event, AckEvent)
        assert event.positions == [Position(5, 2)]
        words = ((1 << 64) - 1, 0, 1 << 62, 1 << 63)
        assert event.batch_acks == [(Position(5, 1), words, 200)]

    def test_transactions_and_validation_errors(self) -> None:
        ack = pb.CommandAck(
            consumer_id=1,
            ack_type=pb.CommandAck.Cumulative,
            message_id=[message_id_data(Position(-1, -1))],
            validation_error=pb.CommandAck.ChecksumMismatch,
            txnid_least_bits=4,
            txnid_most_bits=5,
            request_id=6,
        )
        (event,) = parse(encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack)))
        assert isinstance(event, AckEvent)
        assert event.positions == [Position(-1, -1)]
        assert (event.cumulative, event.txn, event.validation_error) == (True, (5, 4), 2)
        assert event.request_id == 6
