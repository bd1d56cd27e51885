"""The hand-shake by user and password: the example of RFC 2831, and both sides against each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.auth.digest_md5 import DigestClient, DigestError, DigestServer

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)


def test_the_example_of_the_standard() -> None:
    client = DigestClient("chris", "secret", "OA6MHXh6VqTrRk", uri="imap/elwood.innosoft.com")
    assert b"response=d388dad90d4bbd760a152321f2143af7" in client.answer(CHALLENGE)
    client.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(DigestError):
        client.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")


@given(TEXT, TEXT)
def test_who_knows_the_password_is_let_in_and_knows_the_server(user: str, password: str) -> None:
    server, client = DigestServer({user: password}, "n0nce"), DigestClient(user, password, "cn")
    client.check(server.answer(client.answer(server.challenge())))


@pytest.mark.parametrize(
    ("user", "password"), [("bookkeeper", "wrong"), ("other", "secret"), ("other", "n0nce"), ("", "secret")]
)
def test_nobody_else_is(user: str, password: str) -> None:
    server = DigestServer({"bookkeeper": "secret"}, "n0nce")
    with pytest.raises(DigestError):
        server.answer(DigestClient(user, password, "cn").answer(server.challenge()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'nonce="n0nce"', b'nonce="other"'),
        (b"nc=00000001", b"nc=00000002"),
        (b"qop=auth", b"qop=auth-int"),
        (b'digest-uri="bookkeeper/', b'digest-uri="imap/'),
        (b'realm="bookkeeper"', b'realm="other"'),
        (b"charset=utf-8", b'charset=utf-8,authzid="admin"'),
        (b"charset=utf-8", b"charset=utf-8,charset=utf-8"),
        (b'cnonce="cn"', b'cnonce=""'),
    ],
)
def test_no_field_can_be_changed(old: bytes, new: bytes) -> None:
    server = DigestServer({"bookkeeper": "secret"}, "n0nce")
    proof = DigestClient("bookkeeper", "secret", "cn").answer(server.challenge())
    assert old in proof
    with pytest.raises(DigestError):
        server.answer(proof.replace(old, new))


@given(st.binary(max_size=80))
def test_bytes_that_are_no_token_are_refused(token: bytes) -> None:
    with pytest.raises(DigestError):
        DigestServer({"bookkeeper": "secret"}, "n0nce").answer(token)
    with pytest.raises(DigestError):
        DigestClient("bookkeeper", "secret", "cn").check(token)


def test_a_challenge_that_cannot_be_met_is_refused() -> None:
    for wrong in (
        b"",
        re.sub(b'nonce="[^"]*"', b'nonce=""', CHALLENGE),
        CHALLENGE.replace(b"md5-sess", b"x"),
    ):
        with pytest.raises(DigestError):
            DigestClient("chris", "secret", "cn").answer(wrong)
    with pytest.raises(DigestError):
        DigestServer({"bookkeeper": "secret"}, "n0nce").answer(b"x" * 5_000)
