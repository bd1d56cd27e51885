"""Entries to Arrow: every shape, against a decoder that goes message by message."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.client.deliveries import UNKNOWN
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.cases import cases
from support.decoding import decoded, entries_of, naive

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
pairs = st.lists(st.builds(lambda key, value: pb.KeyValue(key=key, value=value), texts, texts), max_size=3)
times = st.integers(1, 2**42)


@st.composite
def key_fields(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    kind = draw(st.sampled_from(("none", "text", "bytes", "null")))
    if kind == "text":
        fields["partition_key"] = draw(texts)
    elif kind == "bytes":
        fields["partition_key"] = base64.b64encode(draw(st.binary(max_size=9))).decode()
        fields["partition_key_b64_encoded"] = True
    elif kind == "null":
        fields["null_partition_key"] = True
    return fields


@st.composite
def singles(draw: st.DrawFn) -> tuple[pb.SingleMessageMetadata, bytes]:
    single = pb.SingleMessageMetadata(**draw(key_fields()))
    single.properties.extend(draw(pairs))
    if draw(st.booleans()):
        single.event_time = draw(times)
    if draw(st.booleans()):
        single.sequence_id = draw(st.integers(0, 2**40))
    if draw(st.booleans()):
        single.ordering_key = draw(st.binary(max_size=5))
    if draw(st.integers(0, 5)) == 0:
        single.compacted_out = True
    if draw(st.integers(0, 5)) == 0:
        single.null_value = True
        return single, b""
    return single, draw(st.binary(max_size=300))


@st.composite
def entries(draw: st.DrawFn) -> tuple[bytes, int]:
    metadata = pb.MessageMetadata(
        producer_name=draw(texts), sequence_id=draw(st.integers(0, 2**62)), publish_time=draw(times)
    )
    if draw(st.booleans()):
        metadata.schema_version = draw(st.binary(min_size=1, max_size=8))
    if draw(st.integers(0, 4)) == 0:
        metadata.replicated_from = "west"
    if draw(st.booleans()):
        messages = draw(st.lists(singles(), min_size=1, max_size=9))
        if draw(st.booleans()):
            # Messages of one shape, as most producers make them.
            single, value = messages[0]
            messages = [(single, value)] * draw(st.integers(4, 40))
        payload, count = build_batch(messages), len(messages)
        metadata.num_messages_in_batch = count
    else:
        for name, value in draw(key_fields()).items():
            setattr(metadata, name, value)
        metadata.properties.extend(draw(pairs))
        if draw(st.booleans()):
            metadata.event_time = draw(times)
        if draw(st.booleans()):
            metadata.ordering_key = draw(st.binary(max_size=5))
        payload, count = draw(st.binary(max_size=300)), 1
        if draw(st.integers(0, 5)) == 0:
            metadata.null_value, payload = True, b""
        if draw(st.integers(0, 9)) == 0:
            metadata.marker_type = 10
    if draw(st.booleans()):
        metadata.compression = pb.CompressionType.ZLIB
        metadata.uncompressed_size = len(payload)
        payload = zlib.compress(payload)
    entry = build_entry(metadata, payload)
    return (entry if draw(st.booleans()) else entry[6:]), count


@settings(max_examples=cases(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(entries(), min_size=1, max_size=12), st.booleans())
def test_equals_the_naive_decoder(made: list[tuple[bytes, int]], indexed: bool) -> None:
    columns = entries_of([entry for entry, _ in made], [count for _, count in made], 10)
    if not indexed:
        columns.last_indexes = [UNKNOWN] * len(made)
    assert decoded(columns) == naive(columns)
