"""What was found out about credentials, for a while."""

from __future__ import annotations

import pytest

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.remembered import Remembered

RIGHT, WRONG = Credentials("basic", b"u:right"), Credentials("basic", b"u:wrong")
WHO = Identity("u")


def test_answers_are_known_for_a_while() -> None:
    known = Remembered(b"key")
    assert known.find(RIGHT, 0) is None
    known.note(RIGHT, WHO, 0)
    known.note(WRONG, AuthenticationError("user or password is wrong"), 0)
    assert known.find(RIGHT, 299_999) == WHO
    assert known.find(RIGHT, 300_000) is None
    with pytest.raises(AuthenticationError, match="is wrong"):
        known.find(WRONG, 9_999)
    assert known.find(WRONG, 10_000) is None


def test_methods_and_data_are_told_apart() -> None:
    known = Remembered(b"key")
    known.note(Credentials("ab", b"c"), WHO, 0)
    assert known.find(Credentials("a", b"bc"), 0) is None
    assert known.find(Credentials("x", b"c"), 0) is None


def test_what_ends_is_not_known_longer() -> None:
    known = Remembered(b"key")
    known.note(RIGHT, Identity("u", 5_000), 0)
    assert known.find(RIGHT, 4_999) is not None
    assert known.find(RIGHT, 5_000) is None


def test_guesses_push_out_guesses_alone() -> None:
    known = Remembered(b"key")
    known.note(RIGHT, WHO, 0)
    for number in range(10_000):
        known.note(Credentials("basic", b"u:%d" % number), AuthenticationError("wrong"), 0)
    assert known.find(RIGHT, 1) == WHO
    assert known.find(Credentials("basic", b"u:0"), 1) is None
    with pytest.raises(AuthenticationError):
        known.find(Credentials("basic", b"u:9999"), 1)
    known.forget()
    assert known.find(RIGHT, 1) is None


def test_a_clock_that_is_set_back_makes_nothing_known_longer() -> None:
    known = Remembered(b"key")
    known.note(RIGHT, WHO, 7_200_000)
    known.note(WRONG, AuthenticationError("user or password is wrong"), 7_200_000)
    assert known.find(RIGHT, 0) is None
    assert known.find(WRONG, 0) is None
