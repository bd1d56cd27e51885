"""Which clients are let in: the decisions."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.auth.digest_md5 import DigestClient
from magnetar.bookie.network.access import SASL, Access, Door, role_of
from magnetar.wire.bookkeeper.requests import AddRun, Auth, BatchRead, BookieInfo, Read, ReadLac, Request
from magnetar.wire.bookkeeper.responses import Added, AuthDone, BookieInfoDone, LacRead, ReadDone
from magnetar.wire.bookkeeper.status import Status

NO = Status.UNAUTHORIZED


def certificate(name: str, unit: str | None = None) -> dict[str, Any]:
    subject = [(("commonName", name),)]
    if unit is not None:
        subject.append((("organizationalUnitName", unit),))
    return {"subject": tuple(subject)}


def door(access: Access) -> Door:
    return Door(access, lambda: "n0nce")


@pytest.mark.parametrize(
    ("unit", "role"),
    [
        (None, "broker"),
        ("people", "broker"),
        ("0:writer", "writer"),
        ("1:cluster;0: writer , other ", "writer"),
        ("0:", "broker"),
        ("1:writer", "broker"),
    ],
)
def test_the_role_in_a_certificate(unit: str | None, role: str) -> None:
    assert role_of(certificate("broker", unit)) == role


def test_who_shows_nothing_has_no_role() -> None:
    assert role_of(None) is None
    assert role_of({}) is None


def test_whoever_is_not_let_in_is_told_so() -> None:
    closed = door(Access(tls_required=True))
    run = AddRun(7, b"key")
    run.entry_ids, run.entries = [3, 4], [b"a", b"b"]
    added = closed.answer(run)
    assert isinstance(added, Added)
    assert (added.status, added.entry_ids) == (NO, [3, 4])
    assert closed.answer(Read(7, 1)) == ReadDone(7, 1, NO, None)
    assert closed.answer(ReadLac(7, 5)) == LacRead(7, NO, 5)
    assert closed.answer(BookieInfo(5, capacity=True, free=True)) == BookieInfoDone(NO, 5)
    assert closed.answer(BatchRead(7, 0, 1, 10, 100)) is None


def test_tls_opens_where_only_tls_is_asked_for() -> None:
    one = door(Access(tls_required=True))
    assert not one.is_open
    assert one.secured(None) is None
    assert one.is_open


def test_a_role_opens_and_another_shuts() -> None:
    access = Access(roles=frozenset({"broker"}))
    one = door(access)
    assert one.secured(certificate("broker")) is None
    assert one.is_open
    for wrong in (None, certificate("somebody"), certificate("broker", "0:other")):
        other = door(access)
        assert other.secured(wrong) is not None
        assert other.is_shut
        assert not other.is_open


@pytest.mark.parametrize("txn_id", [None, 9], ids=["v2", "v3"])
def test_a_password_is_proven_in_two_steps(txn_id: int | None) -> None:
    one = door(Access(users={"bookkeeper": "secret"}))
    client = DigestClient("bookkeeper", "secret", "cn")
    challenge = one.answer(Auth(SASL, b"", txn_id))
    assert isinstance(challenge, AuthDone)
    assert not one.is_open
    proof = one.answer(Auth(SASL, client.answer(challenge.payload), txn_id))
    assert isinstance(proof, AuthDone)
    assert proof.txn_id == txn_id
    client.check(proof.payload)
    assert one.is_open


def test_a_password_that_is_not_proven_shuts() -> None:
    access = Access(users={"bookkeeper": "secret"})
    for payloads in ((b"", b"nonsense"), (b"", DigestClient("bookkeeper", "x", "c").answer(CHALLENGE))):
        one = door(access)
        answers = [one.answer(Auth(SASL, payload, 1)) for payload in payloads]
        assert answers[-1] == AuthDone(SASL, b"", NO, 1)
        assert one.is_shut
    other = door(access)
    assert other.answer(Auth("another", b"")) is None
    assert other.is_shut


def test_no_password_is_asked_for_in_clear_where_there_must_be_tls() -> None:
    one = door(Access(tls_required=True, users={"bookkeeper": "secret"}))
    assert one.answer(Auth(SASL, b"", 1)) == AuthDone(SASL, b"", NO, 1)
    two = door(Access(tls_required=True, users={"bookkeeper": "secret"}))
    assert two.secured(None) is None
    assert not two.is_open
    challenge = two.answer(Auth(SASL, b"", 1))
    assert isinstance(challenge, AuthDone)
    assert challenge.status is Status.OK


CHALLENGE = b'realm="bookkeeper",nonce="n0nce",qop="auth",charset=utf-8,algorithm=md5-sess'


@pytest.mark.parametrize("request_", [Read(7, 1), ReadLac(7, 5), BookieInfo(5, capacity=True, free=True)])
def test_refused_requests_end_a_client(request_: Request) -> None:
    """They cost the bookie work, and a client that goes on has nothing to show."""
    closed = door(Access(users={"bookkeeper": "secret"}))
    for _ in range(63):
        assert closed.answer(request_) is not None
        assert not closed.is_shut
    assert closed.answer(request_) is not None, "the last one is answered, too"
    assert closed.is_shut
