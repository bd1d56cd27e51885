"""Directories of keys: what they tell, how they are merged, what damage does."""

from __future__ import annotations

import base64

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from magnetar.history import key_directory
from magnetar.history.key_directory import KeyDirectory, TooManyKeysError
from magnetar.history.key_index import hash_of
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, KeyPlace

FIRST_VERSION = base64.b64decode(
    "TUdLRAEAAAAAAAAAJQAAAFtbMywiYXR0ZW1wdCAzIiwwXSxbMiwiYXR0ZW1wdCAyIiwwXV1NR0tJAQAAAAAAAAAD"
    "AAAAAAAAAAMAAADu0dOxV6mYegAAAAAAAAAA7tHTsVepmHoBAAAAAAAAAIl4WfZlVVWFAAAAAAAAAAA="
)
"""Ledger 3 with the keys a and b, ledger 2 with b, as the first version wrote it."""


class Bytes:
    """A source that counts its reads."""

    name = "keys"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads = 0

    def read_at(self, offset: int, length: int) -> bytes:
        assert offset + length <= self.size
        self.reads += 1
        return self.data[offset : offset + length]


def place(ledger: int) -> KeyPlace:
    return KeyPlace(ledger, f"attempt {ledger}", 0)


def part(ledger: int, keys: list[bytes]) -> tuple[list[KeyPlace], np.ndarray, np.ndarray]:
    hashes = np.array(sorted(hash_of(key) for key in keys), np.uint64)
    return [place(ledger)], hashes, np.zeros(len(hashes), np.int64)


def test_it_tells_who_has_a_key_and_who_has_not() -> None:
    directory = KeyDirectory(
        Bytes(key_directory.encode([part(3, [b"a", b"b"]), part(2, [b"b"]), part(1, [])]))
    )
    assert directory.find(b"a") == ([place(3), place(2), place(1)], [place(3)])
    assert set(directory.find(b"b").holders) == {place(3), place(2)}
    assert directory.find(b"c").holders == []


def test_directories_are_made_of_directories() -> None:
    lower = KeyDirectory(Bytes(key_directory.encode([part(2, [b"a", b"b"]), part(1, [b"b", b"c"])])))
    upper = KeyDirectory(Bytes(key_directory.encode([part(3, [b"c"]), (lower.segments, *lower.hashes())])))
    assert upper.segments == [place(3), place(2), place(1)]
    assert set(upper.find(b"b").holders) == {place(2), place(1)}
    assert set(upper.find(b"c").holders) == {place(3), place(1)}


def test_no_keys_are_one_read() -> None:
    source = Bytes(key_directory.encode([part(2, []), part(1, [])]))
    assert KeyDirectory(source).find(b"a") == ([place(2), place(1)], [])
    assert source.reads == 1


def test_many_keys_are_three_reads() -> None:
    source = Bytes(key_directory.encode([part(1, [b"%d" % number for number in range(20_000)])]))
    assert source.size > 4 * key_directory.BEGINNING_BYTES
    assert KeyDirectory(source).find(b"7").holders == [place(1)]
    assert source.reads <= 3


def test_a_long_list_is_read_to_its_end() -> None:
    parts = [part(number, [b"k"]) for number in range(4_000)]
    source = Bytes(key_directory.encode(parts))
    assert len(KeyDirectory(source).find(b"k").holders) == 4_000


def test_too_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_directory, "RECORDS_MAX", 2)
    with pytest.raises(TooManyKeysError):
        key_directory.encode([part(1, [b"a", b"b", b"c"])])


def test_every_flipped_bit_is_told_or_harmless(nightly: bool) -> None:
    """A key was denied that is there, and an older message passed for its last one. At night every bit; else
    one of each byte."""
    keys = [b"%d" % number for number in range(100)]
    data = key_directory.encode([part(1, keys[:50]), part(2, keys[25:])])
    whole = KeyDirectory(Bytes(data))
    asked = [b"0", b"37", b"99", b"nowhere"]
    answers = {key: whole.find(key) for key in asked}
    bits = range(8 * len(data)) if nightly else [8 * at + at % 8 for at in range(len(data))]
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        directory = KeyDirectory(Bytes(bytes(damaged)))
        told = 0
        for key in asked:
            try:
                assert directory.find(key) == answers[key], bit
            except DamagedSegmentError:
                told += 1
        with pytest.raises(DamagedSegmentError):
            assert directory.hashes()
        # Damage of the records of one prefix is none of the others.
        assert told or bit >= 8 * (whole._section_at), bit


def test_a_file_cut_off_anywhere_is_told() -> None:
    for parts in ([part(1, [b"a"])], [part(1, [])]):
        data = key_directory.encode(parts)
        for size in range(len(data)):
            with pytest.raises(DamagedSegmentError):
                KeyDirectory(Bytes(data[:size])).find(b"a")


def test_directories_of_the_first_version_are_read() -> None:
    """They have no checksums."""
    directory = KeyDirectory(Bytes(FIRST_VERSION))
    assert directory.find(b"a") == ([place(3), place(2)], [place(3)])
    assert set(directory.find(b"b").holders) == {place(3), place(2)}
    assert len(directory.hashes()[0]) == 3
