"""Calls and answers of a served metadata store, to bytes and back."""

from __future__ import annotations

import pytest

from magnetar.base.errors import DiskFullError, MagnetarError, MetadataError, ProtocolError
from magnetar.metadata.paths import InvalidPathError
from magnetar.metadata.served import call_codec as codec
from magnetar.metadata.served.call_codec import Ask, Call, Here, Result, StoreAnswer, StoreCall, Told
from magnetar.metadata.store import (
    BadVersionError,
    Change,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Notification,
    Put,
    Stat,
    Value,
)

STAT = Stat("/a/é", 3, 1_700_000_000_000, 1_700_000_000_001, ephemeral=True, created_by_self=True, creation=7)
CALLS: list[Call] = [
    codec.GetCall("/a/é"),
    codec.ChildrenCall("/"),
    codec.PutCall(Put("/a", b"\x00\xff", 4), ephemeral=True, sequential=True),
    codec.PutCall(Put("/a", b"")),
    codec.DeleteCall(Delete("/a", -1, 99)),
    codec.DeleteBelowCall("/a"),
    codec.TransactCall((Put("/a", b"x"), Delete("/b"), Delete("/c", 0, 5), Check("/d", 6))),
]
RESULTS: list[Result] = [None, Value(b"\x00", STAT), STAT, ("a", "é"), (), (STAT, None, STAT)]
ERRORS: list[MetadataError] = [
    BadVersionError("/a", 1, 2),
    BadVersionError("/a", 2, 2),
    BadVersionError("/a", -1, None),
    NotFoundError("/a"),
    HasChildrenError("/a"),
    InvalidPathError("a"),
    MetadataError("too many"),
]


def only(encoded: bytes) -> bytes:
    """The one frame; the rest of the buffer stays."""
    buffer = bytearray(encoded + b"\0\0\0\x09rest")
    (frame,) = codec.frames(buffer)
    assert buffer == b"\0\0\0\x09rest"
    return frame


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_calls_come_back(call: Call) -> None:
    assert codec.decode_from_client(only(codec.encode_call(5, call))) == StoreCall(5, call)


@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_results_come_back(result: Result) -> None:
    assert codec.decode_from_server(only(codec.encode_answer(6, result))) == StoreAnswer(6, result)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_come_back(error: MetadataError) -> None:
    answer = codec.decode_from_server(only(codec.encode_answer(6, error)))
    assert isinstance(answer, StoreAnswer)
    assert (type(answer.result), str(answer.result)) == (type(error), str(error))


def test_an_error_of_the_disk_becomes_one_of_the_metadata() -> None:
    error: MagnetarError = DiskFullError("/data")
    answer = codec.decode_from_server(only(codec.encode_answer(6, error)))
    assert isinstance(answer, StoreAnswer)
    assert type(answer.result) is MetadataError
    assert str(answer.result) == str(error)


def test_notes_and_questions_come_back() -> None:
    changes = tuple(Notification(change, f"/{change.value}") for change in Change)
    assert codec.decode_from_server(only(codec.encode_told(changes))) == Told(changes)
    assert codec.decode_from_server(only(codec.encode_ask())) == Ask()
    assert codec.decode_from_client(only(codec.encode_here())) == Here()


def test_frames_are_taken_as_they_become_whole() -> None:
    encoded = b"".join(codec.encode_call(number, call) for number, call in enumerate(CALLS))
    buffer, found = bytearray(), []
    for byte in encoded:
        buffer.append(byte)
        found += [codec.decode_from_client(frame) for frame in codec.frames(buffer)]
    assert found == [StoreCall(number, call) for number, call in enumerate(CALLS)]


def test_what_is_cut_or_unknown_is_refused() -> None:
    for call in CALLS:
        frame = only(codec.encode_call(1, call))
        for length in range(len(frame)):
            with pytest.raises(ProtocolError):
                codec.decode_from_client(frame[:length])
    for result in [*RESULTS, *ERRORS]:
        frame = only(codec.encode_answer(1, result))
        for length in range(len(frame)):
            with pytest.raises(ProtocolError):
                codec.decode_from_server(frame[:length])
    with pytest.raises(ProtocolError):
        codec.decode_from_client(b"\x07\0\0\0\1")
    condition = only(codec.encode_call(1, codec.TransactCall((Check("/d", 6),))))
    for number, broken in ((3, condition[-1:]), (2, b"\xff")):
        # An operation that does not exist, and a condition without a version.
        at = condition.index(b"\x02\0\0\0\x02/d")
        frame = condition[:at] + bytes([number]) + condition[at + 1 : -8] + broken * 8
        with pytest.raises(ProtocolError):
            codec.decode_from_client(frame)
    with pytest.raises(ProtocolError):
        list(codec.frames(bytearray(b"\x7f\xff\xff\xff")))
