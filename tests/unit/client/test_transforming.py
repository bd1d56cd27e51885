"""Entries as messages for programs that transform them, and SENDs of a transaction."""

from __future__ import annotations

import pytest

from magnetar.base.ids import LedgerId, Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.client.transforming import messages_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import encode_send
from magnetar.wire.events import SendRun
from magnetar.wire.payload import build_entry
from magnetar.wire.server import ServerParser

TOPIC = TopicName.parse("t")


def columns(*entries: bytes) -> EntryColumns:
    found = EntryColumns()
    for number, entry in enumerate(entries):
        found.add(LedgerId(3), number, entry, -1, -1)
    return found


def metadata(**more: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **more)  # type: ignore[arg-type]  # any field


def test_single_messages_and_batches() -> None:
    properties = [pb.KeyValue(key="a", value="b")]
    single = build_entry(metadata(partition_key="k", properties=properties), b"one")
    payload = b""
    for value in (b"two", b"three"):
        head = pb.SingleMessageMetadata(payload_size=len(value), partition_key="in").SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + value
    found = list(messages_of(TOPIC, columns(single, build_entry(metadata(num_messages_in_batch=2), payload))))
    assert [(each.value, each.key) for each in found] == [(b"one", "k"), (b"two", "in"), (b"three", "in")]
    assert found[0].properties == {"a": "b"}
    assert [each.position for each in found] == [Position(3, 0), Position(3, 1), Position(3, 1)]


def test_what_cannot_be_given_to_a_function_is_refused() -> None:
    for entry in (
        build_entry(metadata(num_chunks_from_msg=2, chunk_id=0), b"piece"),
        build_entry(metadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")]), b"secret"),
        b"no entry",
    ):
        with pytest.raises(PayloadError):
            list(messages_of(TOPIC, columns(entry)))


@pytest.mark.parametrize("count", [1, 5])
def test_a_send_names_its_transaction(count: int) -> None:
    entry = build_entry(metadata(), b"x")
    highest = 6 + count if count > 1 else None
    frame = encode_send(ProducerId(1), 7, count, entry, highest, txn=(3, (1 << 62) + 1))
    (run,), taken = ServerParser(1 << 16).parse(frame, len(frame))
    assert taken == len(frame)
    assert isinstance(run, SendRun)
    assert (run.txn, list(run.sequence_ids), run.entries) == ((3, (1 << 62) + 1), [7], [entry])
