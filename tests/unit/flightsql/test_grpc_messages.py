"""Messages of gRPC: whole, byte by byte, cut, too large; and texts of errors as headers have them."""

from __future__ import annotations

import pytest

from magnetar.flightsql.grpc_messages import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    PREFIX,
    REASON_BYTES_MAX,
    REQUEST_BYTES_MAX,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    GrpcError,
    RequestMessage,
    code_of,
    framed,
    shown,
)


def taken(*pieces: bytes) -> bytes:
    message = RequestMessage()
    for piece in pieces:
        message.take(piece)
    return message.whole()


@pytest.mark.parametrize("body", [b"", b"x", b"statement" * 100, b"y" * REQUEST_BYTES_MAX])
def test_a_message_is_the_same_however_it_comes(body: bytes) -> None:
    data = framed(body)
    assert taken(data) == body
    assert taken(b"", data[:3], data[3:], b"") == body
    if len(data) < 2_000:
        assert taken(*(data[at : at + 1] for at in range(len(data)))) == body


@pytest.mark.parametrize("data", [b"", b"\0\0", framed(b"abc")[:-1], b"\0\0\0\0\1"])
def test_what_is_cut_is_no_message(data: bytes) -> None:
    with pytest.raises(GrpcError, match="before its message was whole") as told:
        taken(data)
    assert told.value.code == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (PREFIX.pack(0, REQUEST_BYTES_MAX + 1), RESOURCE_EXHAUSTED),
        (PREFIX.pack(0, 0xFFFFFFFF), RESOURCE_EXHAUSTED),
        (PREFIX.pack(1, 3) + b"abc", UNIMPLEMENTED),
        (framed(b"a") + framed(b"b"), UNIMPLEMENTED),
        (framed(b"a") + b"\0", UNIMPLEMENTED),
    ],
)
def test_what_is_refused_is_refused_by_its_first_bytes(data: bytes, code: int) -> None:
    with pytest.raises(GrpcError) as told:
        taken(data)
    assert told.value.code == code


def test_no_more_is_kept_than_a_message_may_have() -> None:
    message = RequestMessage()
    message.take(PREFIX.pack(0, REQUEST_BYTES_MAX))
    with pytest.raises(GrpcError):
        message.take(b"x" * (64 << 20))
    assert len(message._data) <= PREFIX.size + REQUEST_BYTES_MAX + 1


def test_codes_say_whose_fault_it_is() -> None:
    expected = {
        400: INVALID_ARGUMENT,
        401: UNAUTHENTICATED,
        403: PERMISSION_DENIED,
        404: NOT_FOUND,
        412: INVALID_ARGUMENT,
        422: RESOURCE_EXHAUSTED,
        429: RESOURCE_EXHAUSTED,
        500: INTERNAL,
        501: UNIMPLEMENTED,
        503: UNAVAILABLE,
    }
    assert {status: code_of(status) for status in expected} == expected


@pytest.mark.parametrize(
    ("reason", "text"),
    [("no topic t", "no topic t"), ("100 %", "100 %25"), ("zwei\nZeilen  ä\0", "zwei Zeilen %C3%A4%00")],
)
def test_texts_of_errors_are_headers(reason: str, text: str) -> None:
    assert shown(reason) == text


@pytest.mark.parametrize("size", range(3))
def test_a_long_text_is_cut_between_characters(size: int) -> None:
    text = shown("x" * size + "ä" * REASON_BYTES_MAX)
    assert REASON_BYTES_MAX - 3 < len(text) <= REASON_BYTES_MAX
    assert text[size:].strip("%C3A4") == ""
    assert len(text[size:]) % 3 == 0
