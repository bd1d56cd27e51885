"""Paths and values of ledgers in the metadata store, against bytes written by hand from the format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.errors import MetadataError
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ids import RANGE_SIZE, IdRange, decode_reserved, encode_reserved
from magnetar.ledger.ledger_metadata import (
    LedgerMetadata,
    LedgerMetadataError,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from magnetar.ledger.paths import ledger_id_of, ledger_path
from magnetar.wire.bookkeeper.digests import DigestType


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (1, "/ledgers/00/0000/L0001"),
        (1234567890, "/ledgers/12/3456/L7890"),
        ((1 << 31) - 2, "/ledgers/21/4748/L3646"),
        ((1 << 31) - 1, "/ledgers/000/0000/0021/4748/L3647"),
        ((1 << 63) - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_paths_are_those_of_the_hierarchical_layout(ledger_id: int, path: str) -> None:
    assert ledger_path(ledger_id) == path
    assert ledger_id_of(path) == ledger_id


@pytest.mark.parametrize(
    "path",
    ["/ledgers/idgen", "/ledgers/LAYOUT", "/ledgers/00/0000", "/ledgers/0/00000/L0001", "/x/00/0000/L0001"],
)
def test_other_nodes_are_no_ledgers(path: str) -> None:
    assert ledger_id_of(path) is None


def test_an_open_ledger_has_the_bytes_of_version_3() -> None:
    metadata = LedgerMetadata(
        state=LedgerState.OPEN, end=None, ensembles=((0, ("b:1",)),), created_ms=300, custom={"k": b"v"}
    )
    body = bytes.fromhex(
        "0801"  # quorumSize
        "1001"  # ensembleSize
        "1800"  # length
        "20ffffffffffffffffff01"  # lastEntryId -1
        "2801"  # OPEN
        "32070a03623a311000"  # segment
        "3803"  # CRC32C
        "4200"  # password
        "4801"  # ackQuorumSize
        "50ac02"  # ctime
        "5a060a016b120176"  # customMetadata
    )  # fmt: skip
    value = b"BookieMetadataFormatVersion\t3\n" + bytes([len(body)]) + body
    assert encode_ledger_metadata(metadata) == value
    assert decode_ledger_metadata(value) == metadata


def test_a_closed_ledger_comes_back() -> None:
    metadata = LedgerMetadata(
        state=LedgerState.CLOSED,
        end=LedgerEnd(41, 1 << 40),
        ensembles=((0, ("a", "b", "c")), (17, ("a", "d", "c"))),
        write_quorum=3,
        ack_quorum=2,
        creation_token=5,
        custom={f"key{i}": bytes(50) for i in range(20)},
        password=b"secret",
    )
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


GOLDEN = Path(__file__).parents[2] / "wire" / "golden" / "bookkeeper" / "vectors.txt"
FIRST = (0, ("b1:3181", "b2:3181", "b3:3181"))
SECOND = (10, ("b1:3181", "b4:3181", "b3:3181"))


def golden(name: str) -> bytes:
    lines = dict(line.split(" ") for line in GOLDEN.read_text().splitlines())
    return bytes.fromhex(lines[f"metadata.{name}"])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_apache_wrote_is_read_and_written_the_same(version: int) -> None:
    opened = LedgerMetadata(
        LedgerState.OPEN,
        None,
        (FIRST,),
        write_quorum=2 if version == 1 else 3,
        ack_quorum=2,
        creation_token=0 if version == 3 else None,
        password=b"" if version == 1 else b"secret",
        digest=None if version == 1 else DigestType.CRC32C,
        format_version=version,
    )
    closed = replace(opened, state=LedgerState.CLOSED, end=LedgerEnd(20, 2000), ensembles=(FIRST, SECOND))
    for name, metadata in (("open", opened), ("closed", closed)):
        assert decode_ledger_metadata(golden(f"{name}.v{version}")) == metadata
        assert encode_ledger_metadata(metadata) == golden(f"{name}.v{version}")


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("CRC32", DigestType.CRC32),
        ("MAC", DigestType.HMAC),
        ("CRC32C", DigestType.CRC32C),
        ("DUMMY", DigestType.DUMMY),
    ],
)
def test_every_digest_has_apaches_number(name: str, digest: DigestType) -> None:
    metadata = decode_ledger_metadata(golden(f"open.{name}"))
    assert metadata.digest is digest
    assert encode_ledger_metadata(metadata) == golden(f"open.{name}")


def test_a_ledger_in_recovery_as_apache_wrote_it() -> None:
    metadata = decode_ledger_metadata(golden("recovery.v3"))
    assert (metadata.state, metadata.created_ms, metadata.creation_token) == (
        LedgerState.IN_RECOVERY,
        1_700_000_000_000,
        77,
    )
    assert metadata.custom == {"application": b"payload bytes"}


def test_version_1_says_that_a_ledger_is_in_recovery() -> None:
    metadata = decode_ledger_metadata(golden("open.v1")).recovering()
    value = encode_ledger_metadata(metadata)
    assert value.endswith(b"\n-102\tCLOSED\n")
    assert decode_ledger_metadata(value) == metadata


def test_length_and_last_entry_mean_nothing_before_the_ledger_is_closed() -> None:
    closed = LedgerMetadata(state=LedgerState.CLOSED, end=LedgerEnd(41, 9), ensembles=((0, ("a",)),))
    value = encode_ledger_metadata(closed).replace(b"\x28\x03", b"\x28\x01", 1)
    assert decode_ledger_metadata(value).end is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"BookieMetadataFormatVersion\t3",
        b"BookieMetadataFormatVersion\t9\n\x00",
        b"something else\n\x00",
        b"BookieMetadataFormatVersion\t3\n",
        b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\xff\xff",
        b"BookieMetadataFormatVersion\t3\n\x0aabc",
        b"BookieMetadataFormatVersion\t1\n2\n3",
        b"BookieMetadataFormatVersion\t1\n2\n3\nx\n",
        b"BookieMetadataFormatVersion\t1\n2\n3\n0\nx\tb1\n",
        b"BookieMetadataFormatVersion\t2\nquorumSize: x",
        b"BookieMetadataFormatVersion\t2\n\xff",
        b"BookieMetadataFormatVersion\t3\n\x04abcd",
    ],
)
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(LedgerMetadataError):
        decode_ledger_metadata(value)


def test_a_range_gives_each_id_once() -> None:
    ids = IdRange()
    assert ids.take() is None
    ids.reserved(decode_reserved(None, "/x"))
    assert [ids.take() for _ in range(RANGE_SIZE + 1)] == [*range(1, RANGE_SIZE + 1), None]
    ids.reserved(decode_reserved(encode_reserved(1000), "/x"))
    assert ids.take() == 1000


@pytest.mark.parametrize("value", [b"-1", b"9" * 5_000, b"9223372036854775807"])
def test_a_generator_without_a_usable_number_is_an_error(value: bytes) -> None:
    with pytest.raises(MetadataError, match=r"^/x "):
        decode_reserved(value, "/x")
