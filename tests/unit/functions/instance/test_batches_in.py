"""Entries become the payloads of their messages, whatever client wrote them."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.functions.errors import UnreadableInputError
from magnetar.functions.instance.batches_in import opened, split
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, build_batch, build_entry

TOPIC = TopicName.parse("orders")
PLACE = (1, 2, 9, 0)


def batch(*payloads: bytes, **said: object) -> bytes:
    return build_batch([(pb.SingleMessageMetadata(**said), payload) for payload in payloads])  # type: ignore[arg-type]  # fields of the message


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384])
def test_payloads_of_each_size_are_found(size: int) -> None:
    payloads = [bytes([65 + number]) * size for number in range(3)]
    assert split(batch(*payloads), 3)[1] == payloads


def test_a_batch_of_one_is_not_taken_for_an_empty_one() -> None:
    """A size begins with zeros: a head of zeros would match at once, with an empty payload."""
    assert split(batch(b"shout"), 1)[1] == [b"shout"]


def test_sizes_that_differ_are_found() -> None:
    payloads = [b"", b"a", b"bb" * 90, b"c", b"c"]
    assert split(batch(*payloads), 5)[1] == payloads


def test_metadata_of_other_clients_are_found() -> None:
    data = build_batch(
        [(pb.SingleMessageMetadata(sequence_id=n, event_time=5), b"x%d" % n) for n in range(300)]
    )
    said, payloads = split(data, 300)
    assert payloads == [b"x%d" % n for n in range(300)]
    assert pb.SingleMessageMetadata.FromString(said[299]).sequence_id == 299


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_of_another_count_than_it_says_is_read_by_its_count_or_refused(count: int) -> None:
    data = batch(b"a", b"b")
    if count == 1:
        assert split(data, 1)[1] == [b"a"]
    else:
        with pytest.raises(EntryError):
            split(data, 3)


def test_properties_are_seen() -> None:
    single = pb.SingleMessageMetadata()
    single.properties.add(key="k", value="v")
    payload = build_batch([(pb.SingleMessageMetadata(), b"a"), (single, b"b")])
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=2)
    entry = opened(0, build_entry(metadata, payload), PLACE, TOPIC)
    assert not entry.plain
    assert [len(entry.said_of(row).properties) for row in range(2)] == [0, 1]


def test_what_cannot_be_opened_is_refused_with_its_place() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_chunks_from_msg=2)
    with pytest.raises(UnreadableInputError, match=r"entry 1:2 of .*orders is a part of a large message"):
        opened(0, build_entry(metadata, b"half"), PLACE, TOPIC)
    with pytest.raises(UnreadableInputError, match="1:2"):
        opened(0, b"\x00\x00\x00\x05ab", PLACE, TOPIC)
