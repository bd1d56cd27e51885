"""Batches walked side by side give what each gives alone."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.arrow.batch_walk import walk_batches
from magnetar.arrow.batches import batch_spans
from magnetar.arrow.fields import PADDING
from magnetar.client.errors import PayloadError
from magnetar.wire.payload import build_batch
from support.cases import cases
from support.history_entries import singles


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, int]:
    messages = draw(st.lists(singles(), min_size=1, max_size=4))
    payload = bytearray(build_batch(messages))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        payload[draw(st.integers(0, len(payload) - 1))] ^= draw(st.integers(1, 255))
    return bytes(payload), len(messages)


@settings(max_examples=cases(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(batches(), min_size=64, max_size=80))
def test_side_by_side_is_one_by_one(parts: list[tuple[bytes, int]]) -> None:
    data = b"".join([*(payload for payload, _ in parts), PADDING])
    array = np.frombuffer(data, np.uint8)
    counts = np.array([count for _, count in parts], np.int64)
    ends = np.cumsum([len(payload) for payload, _ in parts])
    starts = ends - np.array([len(payload) for payload, _ in parts])
    spans, is_sound = walk_batches(data, array, starts, ends, counts)
    at = 0
    for row, (start, end, count) in enumerate(
        zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)
    ):
        try:
            alone = batch_spans(data, array, start, end, count)
        except PayloadError:
            assert not is_sound[row]
        else:
            assert is_sound[row]
            for together, expected in zip(spans, alone, strict=True):
                assert together[at : at + count].tolist() == expected.tolist()
        at += count
