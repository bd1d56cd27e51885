"""Directories of keys: what they tell, how they are merged, what damage does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from magnetar.history import key_directory
from magnetar.history.key_directory import KeyDirectory, TooManyKeysError
from magnetar.history.key_index import hash_of
from magnetar.tiered.parquet.api import DamagedSegmentError, KeyPlace


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


@pytest.mark.parametrize("at", [0, 5, 16, 20])
def test_damage_is_told(at: int) -> None:
    data = bytearray(key_directory.encode([part(1, [b"a"])]))
    data[at] ^= 0xFF
    with pytest.raises(DamagedSegmentError):
        KeyDirectory(Bytes(bytes(data))).find(b"a")


@pytest.mark.parametrize("size", [0, 3, 17, 60])
def test_a_file_cut_off_is_told(size: int) -> None:
    data = key_directory.encode([part(1, [b"a"])])[:size]
    with pytest.raises(DamagedSegmentError):
        KeyDirectory(Bytes(data)).find(b"a")
