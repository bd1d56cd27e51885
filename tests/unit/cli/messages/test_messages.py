"""Entries as messages, and messages as entries."""

from __future__ import annotations

import io
import json

import pytest

from magnetar.base.names import TopicName
from magnetar.cli.messages.decoding import decode_payload, plain, text
from magnetar.cli.messages.encoding import encode_payload
from magnetar.cli.messages.message_options import resumable
from magnetar.cli.messages.records import Record, records_of
from magnetar.cli.messages.topic_writer import partition_of_key
from magnetar.cli.storage.progress import ShownProgress
from magnetar.client.compression import compress
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.schemas.avro_plain import AvroError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

TOPIC = TopicName.parse("t-partition-2")


def read(entry: bytes, *, index: int = -1, time_ms: int = -1) -> list[Record]:
    columns = EntryColumns()
    columns.add(4, 7, entry, index, time_ms)
    return list(records_of(TOPIC, columns))


def test_a_compressed_batch_is_opened() -> None:
    singles = [
        (pb.SingleMessageMetadata(payload_size=0, partition_key=f"k{i}", sequence_id=i), b"%d" % i)
        for i in range(3)
    ]
    singles[1][0].compacted_out = True
    payload = build_batch(singles)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=5,
        publish_time=9,
        num_messages_in_batch=3,
        compression=pb.CompressionType.ZLIB,
        uncompressed_size=len(payload),
    )
    first, last = read(
        build_entry(metadata, compress(pb.CompressionType.ZLIB, payload)), index=12, time_ms=10
    )
    assert (first.payload, first.key, first.id, first.index, first.is_last) == (
        b"0",
        "k0",
        "4:7:2:0",
        10,
        False,
    )
    assert (last.payload, last.id, last.index, last.is_last, last.time_ms) == (b"2", "4:7:2:2", 12, True, 10)


def test_one_message_says_what_is_known() -> None:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=5, publish_time=9, event_time=3, null_value=True
    )
    metadata.partition_key, metadata.partition_key_b64_encoded = "/w==", True
    metadata.properties.add(key="a", value="b")
    (found,) = read(build_entry(metadata, b""))
    assert found.document(None) == {
        "topic": str(TOPIC), "id": "4:7:2", "publish_time": 9, "event_time": 3, "producer": "p",
        "sequence_id": 5, "key": "\\xff", "properties": {"a": "b"}, "value": None, "size": 0,
    }  # fmt: skip


def test_what_is_encrypted_stays_as_it_is_and_markers_are_no_messages() -> None:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=5,
        publish_time=9,
        num_messages_in_batch=3,
        compression=pb.CompressionType.LZ4,
    )
    metadata.encryption_keys.add(key="k", value=b"v")
    (found,) = read(build_entry(metadata, b"secret"))
    assert (found.encrypted, found.payload) == (True, b"secret")
    marker = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=9, marker_type=1)
    assert read(build_entry(marker, b"")) == []


def test_what_is_no_entry() -> None:
    with pytest.raises(PayloadError, match="4:7"):
        read(b"\x00\x00\x00\x01\xff")


@pytest.mark.parametrize(("key", "hashed"), [("", 0), ("hello", 99_162_322), ("polygenelubricants", 0)])
def test_keys_go_where_other_clients_send_them(key: str, hashed: int) -> None:
    """Java's String.hashCode: of the last one it is the smallest number, which is nothing but a sign."""
    assert partition_of_key(key, 1 << 31) == hashed
    assert 0 <= partition_of_key(key + "ü😀", 7) < 7


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (pb.Schema.Json, b'{"a": 1}', {"a": 1}),
        (pb.Schema.Int32, b"\xff\xff\xff\xfe", -2),
        (pb.Schema.Double, b"\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
        (pb.Schema.Bool, b"\x01", True),
        (pb.Schema.String, "ü".encode(), "ü"),
        (pb.Schema.Avro, b"\x04", 2),
    ],
)
def test_values_by_their_schema(kind: int, payload: bytes, value: object) -> None:
    assert decode_payload(kind, b'"long"', payload) == value
    written = value if isinstance(value, str) else json.dumps(value)
    assert decode_payload(kind, b'"long"', encode_payload(kind, b'"long"', written.encode())) == value


def test_avro_that_names_no_version_is_all_of_its_bytes() -> None:
    assert decode_payload(pb.Schema.Avro, b'"long"', b"poison") == 56
    assert decode_payload(pb.Schema.Avro, b'"long"', b"\x04", whole=True) == 2
    with pytest.raises(AvroError, match="longer than its schema"):
        decode_payload(pb.Schema.Avro, b'"long"', b"poison", whole=True)


def test_bytes_are_shown_as_they_can_be() -> None:
    assert plain({"a": [b"\xff"]}) == {"a": ["/w=="]}
    assert text(b"a\xff") == "a\\xff"
    assert text({"a": 1}) == '{"a": 1}'


def test_progress_is_quiet_at_first_and_says_what_is_left() -> None:
    out = io.StringIO()
    progress = ShownProgress("searched", 1_000, stream=out)
    progress.add(250)
    progress.close()
    assert out.getvalue() == ""
    assert progress.line(5.0) == "searched: 250 of 1,000, 50/s, 15 s left"
    assert ShownProgress("sent", stream=out).line(0.0) == "sent: 0, 0/s"
    verifying = ShownProgress("verify orders", stream=out)
    for done, total in ((0, 0), (10, 40), (8, 40), (20, 40)):
        verifying.at(done, total)
    assert verifying.line(10.0) == "verify orders: 20 of 40, 2/s, 10 s left"


def test_who_interrupts_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), resumable(TOPIC, lambda: 17):
        raise KeyboardInterrupt
    assert "to continue, repeat the command with --from 17" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), resumable(TOPIC, lambda: None):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""
