"""Compressed values of Pulsar's: all its formats, and damage."""

from __future__ import annotations

import struct
import zlib

import cramjam
import pytest

from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.compressed_values import plain
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log_metadata import LogMetadata, decode, encode

PLAIN = bytes(range(256)) * 8
COMPRESSED = [
    PLAIN,
    bytes(cramjam.lz4.compress_block(PLAIN, store_size=False)),
    zlib.compress(PLAIN),
    bytes(cramjam.zstd.compress(PLAIN)),
    bytes(cramjam.snappy.compress_raw(PLAIN)),
]


def value(kind: int, body: bytes, size: int = len(PLAIN)) -> bytes:
    head = pb.CompressedValueInfo(compressionType=kind, uncompressedSize=size).SerializeToString()
    return struct.pack(">Hi", 0x4778, len(head)) + head + body


@pytest.mark.parametrize("kind", range(5))
def test_all_formats_are_read(kind: int) -> None:
    assert plain(value(kind, COMPRESSED[kind]), "v") == PLAIN


def test_a_list_of_ledgers_may_be_compressed() -> None:
    stored = encode(LogMetadata(properties={"a": "b"}))
    assert decode(value(2, zlib.compress(stored), len(stored)), "v") == decode(stored, "v")


@pytest.mark.parametrize(
    "damaged",
    [
        value(1, COMPRESSED[1][:-3]),
        value(2, b"nothing"),
        value(3, COMPRESSED[3][:9]),
        value(4, COMPRESSED[4], 7),
        value(9, PLAIN),
        value(0, PLAIN, 1 << 30),
        value(0, PLAIN, 3),
        value(1, COMPRESSED[1])[:7],
        struct.pack(">Hi", 0x4778, -1) + PLAIN,
        struct.pack(">Hi", 0x4778, 1 << 20) + PLAIN,
    ],
)
def test_damage_is_told(damaged: bytes) -> None:
    with pytest.raises(InvalidLogDataError):
        plain(damaged, "v")
