"""Decompression never takes more than what was announced."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest

from magnetar.client import compression
from magnetar.client.compression import (
    UnknownCompressionError,
    compress,
    decompress_within,
    plain_within,
)
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb

KINDS = (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)
PLAIN = b"magnetar " * 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_come_back(kind: int) -> None:
    assert decompress_within(kind, compress(kind, PLAIN), len(PLAIN)) == PLAIN
    assert decompress_within(kind, compress(kind, b""), 0) == b""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", [-len(PLAIN), -1, 1, 100_000])
def test_a_size_that_is_not_that_of_the_payload_is_an_error(kind: int, lie: int) -> None:
    with pytest.raises(PayloadError):
        decompress_within(kind, compress(kind, PLAIN), len(PLAIN) + lie)


@pytest.mark.parametrize("kind", KINDS)
def test_what_claims_more_than_can_be_spared_is_not_looked_at(kind: int) -> None:
    with pytest.raises(PayloadError, match="are opened here"):
        decompress_within(kind, b"anything", 1001, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_another_kind_are_an_error(kind: int) -> None:
    with pytest.raises(PayloadError):
        decompress_within(kind, b"\xff\xfe\xfd no such format", 100)


def test_a_bomb_is_not_opened() -> None:
    """64 MiB of zeros in 64 KiB, said to be a hundred bytes."""
    stream = zlib.compressobj(1)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush()
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError):
            decompress_within(pb.ZLIB, bomb, 100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_unknown_kind_is_said() -> None:
    with pytest.raises(UnknownCompressionError):
        decompress_within(77, b"x", 1)


LARGE = random.Random(7).randbytes(90_000) + bytes(400_000)


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is opened in a LargeBuffer, in small steps."""
    monkeypatch.setattr(compression, "LARGE_BYTES", 1)
    monkeypatch.setattr(compression, "_ZLIB_INPUT_BYTES", 1_000)
    monkeypatch.setattr(compression, "_ZLIB_OUTPUT_BYTES", 3_000)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_payload_is_a_view_that_keeps_its_memory(kind: int) -> None:
    plain = plain_within(kind, compress(kind, LARGE), len(LARGE))
    assert isinstance(plain, memoryview)
    assert plain == LARGE
    assert decompress_within(kind, compress(kind, plain), len(LARGE)) == LARGE


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", [-len(LARGE) + 1, -3_000, -1, 1, 3_000])
def test_a_lie_about_a_large_payload_is_an_error(kind: int, lie: int) -> None:
    with pytest.raises(PayloadError):
        plain_within(kind, compress(kind, LARGE), len(LARGE) + lie)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("size", [1, 2_999, 3_000, 3_001, 6_000, 90_000])
def test_a_stream_ends_where_its_payload_does(size: int) -> None:
    whole = compress(pb.ZLIB, LARGE[:size])
    assert plain_within(pb.ZLIB, whole, size) == LARGE[:size]
    for broken in (whole[:-1], whole + b"x", whole + whole, whole + bytes(2_000), b"", whole[:5] + whole[7:]):
        with pytest.raises(PayloadError):
            plain_within(pb.ZLIB, broken, size)
