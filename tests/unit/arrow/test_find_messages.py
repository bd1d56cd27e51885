"""Messages of many batches at once, against a walk through each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.arrow.batches import batch_spans
from magnetar.arrow.fields import PADDING
from magnetar.arrow.find_messages import find_messages
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch


def batch(sizes: list[int], key: str = "") -> bytes:
    return build_batch([(pb.SingleMessageMetadata(partition_key=key or None), b"x" * size) for size in sizes])


ALIKE = st.just(batch([5] * 6))
OTHERS = st.builds(
    batch, st.lists(st.integers(0, 9), min_size=1, max_size=6), st.sampled_from(("", "k", "kk"))
)
BATCHES = st.lists(st.tuples(ALIKE | OTHERS), min_size=1, max_size=90)


def count_of(raw: bytes) -> int:
    """Messages of a batch, one after the other."""
    at = count = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(raw[at + 4 : at + 4 + size])
        at += 4 + size + single.payload_size
        count += 1
    return count


@given(BATCHES)
def test_places_are_those_of_a_walk_through_each(batches: list[tuple[bytes]]) -> None:
    raw = [each for (each,) in batches]
    data = b"".join((*raw, PADDING))
    array = np.frombuffer(data, np.uint8)
    ends = np.cumsum([len(each) for each in raw])
    starts = ends - [len(each) for each in raw]
    counts = np.array([count_of(each) for each in raw], np.int64)
    found = find_messages(data, array, starts, ends, counts)
    walked = [
        batch_spans(data, array, start, end, count)
        for start, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)
    ]
    for number in range(3):
        assert found[number].tolist() == [place for each in walked for place in each[number].tolist()]


@pytest.mark.parametrize("wrong", range(3))
def test_one_that_is_cut_off_among_many(wrong: int) -> None:
    raw = [batch([5] * 6) for _ in range(3)]
    raw[wrong] = raw[wrong][:-2]
    data = b"".join((*raw, PADDING))
    ends = np.cumsum([len(each) for each in raw])
    starts = ends - [len(each) for each in raw]
    with pytest.raises(PayloadError):
        find_messages(data, np.frombuffer(data, np.uint8), starts, ends, np.full(3, 6, np.int64))


def test_more_messages_than_there_is_room_for() -> None:
    data = batch([5]) + PADDING
    place = np.array([0]), np.array([len(data) - len(PADDING)])
    with pytest.raises(PayloadError, match="number of messages"):
        find_messages(data, np.frombuffer(data, np.uint8), *place, np.array([1 << 30]))
