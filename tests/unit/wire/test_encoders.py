"""What a broker writes, read back by protobuf and by the client's parser."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientParser, MessageEvent, ReceiptRun
from magnetar.wire.frames import NO_ID, parse_command, varint
from magnetar.wire.messages import MessageEncoder
from magnetar.wire.payload import build_entry, split_broker_metadata
from magnetar.wire.receipts import encode_duplicate_receipt, encode_receipts, encode_unstored_receipts


def frames(data: bytes) -> Iterator[tuple[pb.BaseCommand, bytes]]:
    at = 0
    while at < len(data):
        total, command_bytes = struct.unpack_from(">II", data, at)
        stop = at + 8 + command_bytes
        end = at + 4 + total
        yield parse_command(data[at + 8 : stop])[1], data[stop:end]
        at = end
    assert at == len(data)


def one(data: bytes) -> pb.BaseCommand:
    ((command, rest),) = frames(data)
    assert not rest
    return command


def test_varints() -> None:
    for value in (0, 1, 127, 128, 16_383, 16_384, 1 << 35, NO_ID):
        assert b"\x08" + varint(value) == pb.BrokerEntryMetadata(broker_timestamp=value).SerializeToString()


class TestReceipts:
    @pytest.mark.parametrize(
        ("first", "entry"), [(0, 0), (100, 120), (120, 100), (16_300, 5), (1 << 40, 1 << 35)]
    )
    @pytest.mark.parametrize("rows", [1, 3, 4, 300])
    @pytest.mark.parametrize("partition", [-1, 0, 200])
    def test_runs(self, first: int, entry: int, rows: int, partition: int) -> None:
        ids = list(range(first, first + rows))
        out = list(frames(encode_receipts(300, ids, None, 9, entry, partition)))
        assert len(out) == rows
        for row, (command, rest) in enumerate(out):
            expected = pb.CommandSendReceipt(
                producer_id=300,
                sequence_id=first + row,
                message_id=commands.message_id_data(Position(9, entry + row), partition=partition),
            )
            assert (command.send_receipt, rest) == (expected, b"")

    def test_gaps_and_repetitions(self) -> None:
        ids = [5, 6, 6, 9, 300, 7]
        out = [command.send_receipt for command, _ in frames(encode_receipts(1, ids, None, 9, 126))]
        assert [receipt.sequence_id for receipt in out] == ids
        assert [receipt.message_id.entryId for receipt in out] == list(range(126, 132))

    def test_highest_ids(self) -> None:
        out = [c.send_receipt for c, _ in frames(encode_receipts(1, [0, 10], [9, 500], 9, 0, 3))]
        assert [(r.sequence_id, r.highest_sequence_id, r.message_id.partition) for r in out] == [
            (0, 9, 3),
            (10, 500, 3),
        ]

    def test_none(self) -> None:
        assert encode_receipts(1, [], None, 9, 0) == b""

    def test_duplicates(self) -> None:
        receipt = one(encode_duplicate_receipt(1, NO_ID, NO_ID)).send_receipt
        assert (receipt.sequence_id, receipt.highest_sequence_id) == (NO_ID, NO_ID)
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (NO_ID, NO_ID)
        assert not one(encode_duplicate_receipt(1, 2)).send_receipt.HasField("highest_sequence_id")

    @pytest.mark.parametrize("first", [0, 100, 16_300, 1 << 40])
    @pytest.mark.parametrize("rows", [0, 1, 3, 4, 300])
    def test_of_what_is_not_stored(self, first: int, rows: int) -> None:
        ids = list(range(first, first + rows))
        nowhere = commands.message_id_data(Position(0, 0))
        for known, highest in ((ids, None), ([*ids, 5, 5], None), (ids, [each + 9 for each in ids])):
            out = [
                command.send_receipt for command, _ in frames(encode_unstored_receipts(300, known, highest))
            ]
            assert [receipt.sequence_id for receipt in out] == known
            assert all(receipt.message_id == nowhere for receipt in out)
            if highest is not None:
                assert [receipt.highest_sequence_id for receipt in out] == highest

    def test_the_client_reads_them(self) -> None:
        data = encode_receipts(1, list(range(500)), None, 9, 7, 2) + encode_duplicate_receipt(1, 500)
        events, consumed = ClientParser(1 << 20).parse(data, len(data))
        assert consumed == len(data)
        (run,) = events
        assert isinstance(run, ReceiptRun)
        assert run.sequence_ids == list(range(501))
        assert run.ledger_ids == [9] * 500 + [-1]
        assert run.entry_ids == [*range(7, 507), -1]


def entry_run(sizes: list[int], first_entry: int = 0, counts: list[int] | None = None) -> EntryRun:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    entries = [build_entry(metadata, bytes(size)) for size in sizes]
    return EntryRun(77, first_entry, entries, counts, 1000, 1_700_000_000_000)


class TestMessages:
    @pytest.mark.parametrize("first_entry", [0, 120, 16_380, 1 << 40])
    @pytest.mark.parametrize("partition", [-1, 5])
    @pytest.mark.parametrize("consumer_id", [0, 1 << 50])
    @pytest.mark.parametrize("epoch", [None, 0, 300])
    def test_plain(self, first_entry: int, partition: int, consumer_id: int, epoch: int | None) -> None:
        run = entry_run([0, 10, 4080, 4096, 100_000, 5, 100_000, 100_000, 1] * 30, first_entry)
        out: list[bytes] = []
        written = MessageEncoder(consumer_id, partition).encode(run, 2, 260, out, consumer_epoch=epoch)
        assert written == sum(map(len, out))
        found = list(frames(b"".join(out)))
        assert len(found) == 258
        for row, (command, rest) in enumerate(found, 2):
            message_id = commands.message_id_data(Position(77, first_entry + row), partition=partition)
            expected = pb.CommandMessage(consumer_id=consumer_id, message_id=message_id, consumer_epoch=epoch)
            assert command.message == expected
            assert rest == run.entries[row]

    @pytest.mark.parametrize("first", [0, 100, 16_300])
    @pytest.mark.parametrize(("epoch", "broker_metadata"), [(None, False), (3, False), (None, True)])
    def test_scattered_rows_are_written_as_each_of_them(
        self, first: int, epoch: int | None, broker_metadata: bool
    ) -> None:
        entries = [b"%d" % i * (1 + 40_000 * (i == 60)) for i in range(300)]
        run = EntryRun(7, first, entries, [2] * 300, 50, 9)
        encoder = MessageEncoder(300, 2, broker_metadata=broker_metadata)
        rows = [0, 1, 5, 60, 127, 128, 200, 299]
        together: list[bytes] = []
        single: list[bytes] = []
        size = encoder.encode_rows(run, rows, together, consumer_epoch=epoch)
        for row in rows:
            encoder.encode(run, row, row + 1, single, consumer_epoch=epoch)
        assert b"".join(together) == b"".join(single)
        assert size == len(b"".join(together))

    def test_large_entries_are_not_copied(self) -> None:
        run = entry_run([10, 100_000, 10])
        for broker_metadata in (False, True):
            out: list[bytes] = []
            MessageEncoder(1, broker_metadata=broker_metadata).encode(run, 0, 3, out)
            assert out[1] is run.entries[1]
            assert len(out) == 3

    def test_everything_at_once(self) -> None:
        run = entry_run([5, 5, 5, 9000, 5], 126, [3, 1, 4, 10, 5])
        out: list[bytes] = []
        written = MessageEncoder(3, 8, broker_metadata=True).encode(
            run,
            1,
            5,
            out,
            redelivery_counts=[0, 1, 200, 0],
            ack_sets=[None, ((1 << 64) - 1, 5), None, (0,)],
            consumer_epoch=2,
        )
        assert written == sum(map(len, out))
        found = list(frames(b"".join(out)))
        assert [command.message.redelivery_count for command, _ in found] == [0, 1, 200, 0]
        assert [list(command.message.ack_set) for command, _ in found] == [[], [-1, 5], [], [0]]
        assert all(command.message.consumer_epoch == 2 for command, _ in found)
        indexes = []
        for row, (_, rest) in enumerate(found, 1):
            broker, at = split_broker_metadata(rest)
            assert broker is not None
            assert broker.broker_timestamp == run.broker_time_ms
            assert rest[at:] == run.entries[row]
            indexes.append(broker.index)
        # The index of the last message of each entry.
        assert indexes == [1003, 1007, 1017, 1022]

    def test_the_client_reads_them(self) -> None:
        run = entry_run([5, 6, 7], 500, [1, 2, 1])
        out: list[bytes] = []
        MessageEncoder(3, 8).encode(run, 0, 3, out)
        informing = MessageEncoder(3, 8, broker_metadata=True)
        informing.encode(run, 0, 2, out, redelivery_counts=[4, 0], ack_sets=[(6,), None])
        data = b"".join(out)
        events, consumed = ClientParser(1 << 20).parse(data, len(data))
        assert consumed == len(data)
        messages = [event for event in events if isinstance(event, MessageEvent)]
        assert [m.position for m in messages] == [Position(77, 500 + i) for i in (0, 1, 2, 0, 1)]
        assert [m.entry for m in messages] == [run.entries[i] for i in (0, 1, 2, 0, 1)]
        assert [m.broker_index for m in messages] == [None, None, None, 1000, 1002]
        assert [m.redelivery_count for m in messages] == [0, 0, 0, 4, 0]
        assert [m.ack_set for m in messages] == [None, None, None, (6,), None]
        assert all(m.partition == 8 and m.consumer_id == 3 and m.intact for m in messages)
        assert [len(m.entry) - m.payload_at for m in messages] == [5, 6, 7, 5, 6]


class TestReplies:
    def test_each_is_a_frame_of_its_type(self) -> None:
        code = pb.ServerError.ServiceNotReady
        schema = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Avro)
        types = pb.BaseCommand
        replies = {
            types.PING: [commands.PING],
            types.PONG: [commands.PONG],
            types.CONNECTED: [commands.connected("v", 20, 5, features.broker_features())],
            types.AUTH_CHALLENGE: [commands.auth_challenge("v", 20, "sasl", b"x")],
            types.SUCCESS: [commands.success(1), commands.success(1, schema=schema)],
            types.ERROR: [commands.error(1, code, "m")],
            types.SEND_ERROR: [commands.send_error(1, 2, code, "m")],
            types.PRODUCER_SUCCESS: [
                commands.producer_success(1, "p"),
                commands.producer_success(
                    1, "p", last_sequence_id=5, schema_version=bytes(8), topic_epoch=1, ready=False
                ),
            ],
            types.CLOSE_PRODUCER: [commands.close_producer(1)],
            types.CLOSE_CONSUMER: [commands.close_consumer(1)],
            types.PARTITIONED_METADATA_RESPONSE: [
                commands.partitions(1, 0),
                commands.partitions_error(1, code, "m"),
            ],
            types.LOOKUP_RESPONSE: [
                commands.lookup_response(1, "pulsar://h:1"),
                commands.lookup_response(
                    1, "pulsar://h:1", service_url_tls="pulsar+ssl://h:2", redirect=True
                ),
                commands.lookup_error(1, code, "m"),
            ],
            types.ACK_RESPONSE: [
                commands.ack_response(1, 2),
                commands.ack_response(1, 2, code=code, message="m"),
            ],
            types.ACTIVE_CONSUMER_CHANGE: [commands.active_consumer_change(1, active=True)],
            types.GET_LAST_MESSAGE_ID_RESPONSE: [
                commands.last_message_id(1, Position(-1, -1)),
                commands.last_message_id(1, Position(5, 6), batch_index=3, mark_delete=Position(5, -1)),
            ],
            types.GET_TOPICS_OF_NAMESPACE_RESPONSE: [commands.topics_of_namespace(1, ["a", "b"])],
            types.GET_SCHEMA_RESPONSE: [
                commands.schema_found(1, schema, bytes(8)),
                commands.schema_error(1, code, "m"),
            ],
            types.GET_OR_CREATE_SCHEMA_RESPONSE: [
                commands.schema_registered(1, bytes(8)),
                commands.schema_refused(1, code, "m"),
            ],
            types.CONSUMER_STATS_RESPONSE: [
                commands.consumer_stats(pb.CommandConsumerStatsResponse(request_id=1, msgBacklog=2))
            ],
            types.REACHED_END_OF_TOPIC: [commands.reached_end_of_topic(1)],
        }
        for kind, variants in replies.items():
            for data in variants:
                assert one(data).type == kind

    def test_last_message_id(self) -> None:
        reply = one(commands.last_message_id(1, Position(-1, -1), mark_delete=Position(5, -1)))
        body = reply.getLastMessageIdResponse
        assert (body.last_message_id.ledgerId, body.last_message_id.batch_index) == (NO_ID, -1)
        assert body.consumer_mark_delete_position.entryId == NO_ID

    def test_producer_success_leaves_out_what_is_not_known(self) -> None:
        body = one(commands.producer_success(1, "p")).producer_success
        assert (body.last_sequence_id, body.producer_ready) == (-1, True)
        assert not body.HasField("schema_version")
        assert not body.HasField("topic_epoch")


class TestFeatures:
    def test_versions(self) -> None:
        assert [features.negotiated_version(v) for v in (-5, 0, 20, 21, 99)] == [0, 0, 20, 21, 21]

    def test_flags(self) -> None:
        flags = {field.name for field, value in features.broker_features().ListFields() if value}
        assert flags == {
            "supports_auth_refresh",
            "supports_partial_producer",
            "supports_topic_watchers",
            "supports_get_partitioned_metadata_without_auto_creation",
        }

    def test_broker_metadata_only_for_those_who_asked(self) -> None:
        connect = pb.CommandConnect(client_version="v", protocol_version=20)
        assert not features.wants_broker_metadata(connect, exposes_metadata=True)
        connect.feature_flags.supports_broker_entry_metadata = True
        # As Pulsar with its defaults: an unmodified client is shown none.
        assert not features.wants_broker_metadata(connect)
        assert features.wants_broker_metadata(connect, exposes_metadata=True)
        connect.feature_flags.magnetar_takes_broker_entry_metadata = True
        assert features.wants_broker_metadata(connect)
        connect.protocol_version = 17
        assert not features.wants_broker_metadata(connect, exposes_metadata=True)

    def test_it_is_told_where_all_clients_may_have_it(self) -> None:
        assert features.broker_features(exposes_metadata=True).supports_broker_entry_metadata
        assert not features.broker_features().HasField("supports_broker_entry_metadata")

    def test_commands_that_close_a_cpp_client(self) -> None:
        assert pb.BaseCommand.REACHED_END_OF_TOPIC not in features.CPP_CLIENT_COMMANDS
        assert pb.BaseCommand.MESSAGE in features.CPP_CLIENT_COMMANDS


def test_every_command_has_the_field_of_its_number() -> None:
    fields = pb.BaseCommand.DESCRIPTOR.fields_by_number
    for name, number in pb.BaseCommand.Type.items():
        content = fields[number].message_type
        assert content is not None
        assert content.name.startswith("Command"), name
    assert set(fields) == {1, *pb.BaseCommand.Type.values()}
