"""How much of a first message of TLS has come."""

from __future__ import annotations

import pytest

from magnetar.runtime.client_hello import HEADER_BYTES, HELLO_SEEN_MAX, hello_wants
from support.tls_hello import HELLO


def record(fragment: bytes) -> bytes:
    return b"\x16\x03\x01" + len(fragment).to_bytes(2, "big") + fragment


def test_a_first_message_is_whole_with_its_last_byte() -> None:
    for end in range(len(HELLO)):
        assert hello_wants(HELLO[:end]) == (HEADER_BYTES if end < HEADER_BYTES else len(HELLO))
    assert hello_wants(HELLO) == 0
    assert hello_wants(HELLO + b"more") == 0


def test_a_first_message_may_lie_in_several_records() -> None:
    message = HELLO[HEADER_BYTES:]
    spread = record(message[:2]) + record(message[2:100]) + record(message[100:])
    assert hello_wants(spread[:7]) == 7 + HEADER_BYTES
    assert hello_wants(spread[:-1]) == len(spread)
    assert hello_wants(spread) == 0
    # Spread over very many, it is for TLS to take.
    assert hello_wants(b"".join(record(message[at : at + 1]) for at in range(4))) == 0


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x15\x03\x01\x00\x02\x01\x00",
        b"\x16\x02\x00\x00\x10",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        record(b"\x02\x00\x00\x01\x00"),
        record(b"\x01\xff\xff\xff\x00"),
    ],
    ids=["HTTP", "an alert", "version 2", "no bytes", "too long", "of a server", "a giant"],
)
def test_what_is_no_first_message_is_for_tls_to_refuse(first: bytes) -> None:
    assert hello_wants(first) == 0


def test_it_never_asks_for_more_than_is_looked_at() -> None:
    longest = record(b"\x01\x00\x40\x00" + bytes(9)) + record(bytes(9)) + record(bytes(9))
    longest += b"\x16\x03\x01\x40\x00"
    assert len(longest) < hello_wants(longest) <= HELLO_SEEN_MAX
