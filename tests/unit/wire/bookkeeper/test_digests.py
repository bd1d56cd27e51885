from __future__ import annotations

import pytest

from magnetar.wire.bookkeeper.digests import HEAD_BYTES, Digester, DigestMismatchError, DigestType

CHECKED = [kind for kind in DigestType if kind is not DigestType.DUMMY]


def sealed(kind: DigestType = DigestType.CRC32C, *, ledger_id: int = 1, entry_id: int = 2) -> bytes:
    return Digester(ledger_id, kind, b"pw").seal(entry_id, 0, 30, b"data") + b"data"


@pytest.mark.parametrize("kind", CHECKED)
def test_a_changed_bit_anywhere_is_found(kind: DigestType) -> None:
    entry = sealed(kind)
    digester = Digester(1, kind, b"pw")
    for at in range(len(entry)):
        damaged = bytearray(entry)
        damaged[at] ^= 0x10
        with pytest.raises(DigestMismatchError):
            digester.open(bytes(damaged), None)


@pytest.mark.parametrize("kind", DigestType)
def test_the_entry_of_another_place_is_refused(kind: DigestType) -> None:
    with pytest.raises(DigestMismatchError, match="entry 3 of ledger 1: these are the bytes of 1:2"):
        Digester(1, kind, b"pw").open(sealed(kind), 3)
    with pytest.raises(DigestMismatchError, match="these are the bytes of 9:2"):
        Digester(1, kind, b"pw").open(sealed(kind, ledger_id=9), 2)


@pytest.mark.parametrize("kind", DigestType)
def test_many_are_sealed_as_one_by_one(kind: DigestType) -> None:
    digester = Digester(1, kind, b"pw")
    payloads = [b"", b"a", bytes(1000)]
    lengths = [10, 11, 1011]
    assert digester.seal_all(5, 3, 10, payloads) == (
        [
            digester.seal(5 + at, 3, length, payload) + payload
            for at, (length, payload) in enumerate(zip(lengths, payloads, strict=True))
        ],
        lengths,
    )
    assert digester.seal_all(5, 3, 10, []) == ([], [])


def test_the_last_entry_may_be_any() -> None:
    assert Digester(1, DigestType.CRC32C).open(sealed(entry_id=77), None).entry_id == 77


@pytest.mark.parametrize("kind", DigestType)
def test_too_few_bytes(kind: DigestType) -> None:
    digester = Digester(1, kind, b"pw")
    short = HEAD_BYTES + digester.digest_bytes - 1
    with pytest.raises(DigestMismatchError, match="bytes are not an entry"):
        digester.open(sealed(kind)[:short], 2)


def test_only_hmac_depends_on_the_password() -> None:
    for kind in CHECKED:
        other = Digester(1, kind, b"other")
        if kind is DigestType.HMAC:
            with pytest.raises(DigestMismatchError, match="digest does not match"):
                other.open(sealed(kind), 2)
        else:
            assert other.open(sealed(kind), 2).payload == b"data"


@pytest.mark.parametrize("kind", CHECKED)
def test_a_damaged_last_add_confirmed(kind: DigestType) -> None:
    digester = Digester(1, kind, b"pw")
    blob = digester.seal_lac(5)
    with pytest.raises(DigestMismatchError):
        digester.open_lac(blob[:-1])
    with pytest.raises(DigestMismatchError):
        digester.open_lac(blob[:-1] + bytes((blob[-1] ^ 1,)))
    with pytest.raises(DigestMismatchError, match="the last add confirmed of ledger 1"):
        Digester(2, kind, b"pw").open_lac(blob)
