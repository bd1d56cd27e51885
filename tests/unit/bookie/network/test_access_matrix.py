"""Every request of a bookie's protocol × what is asked of clients × what a client has shown so far."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.auth.digest_md5 import DigestClient
from magnetar.bookie.network.access import SASL, Access, Door
from magnetar.wire.bookkeeper import requests as asked
from magnetar.wire.bookkeeper.responses import AuthDone
from magnetar.wire.bookkeeper.status import Status

PASSWORD: Final = "secret"


def add() -> asked.AddRun:
    run = asked.AddRun(7, b"key")
    run.entry_ids, run.entries = [3], [b"a"]
    return run


REQUESTS: Final[dict[type, Callable[[], asked.Request]]] = {
    asked.AddRun: add,
    asked.Read: lambda: asked.Read(7, 1, fence=True, master_key=b"key"),
    asked.BatchRead: lambda: asked.BatchRead(7, 0, 1, 10, 100),
    asked.WriteLac: lambda: asked.WriteLac(7, 1, b"key", b"", 5),
    asked.ReadLac: lambda: asked.ReadLac(7, 5),
    asked.ForceLedger: lambda: asked.ForceLedger(7, 5),
    asked.ListEntries: lambda: asked.ListEntries(7, 5),
    asked.BookieInfo: lambda: asked.BookieInfo(5, capacity=True, free=True),
    asked.StartTls: lambda: asked.StartTls(5),
    asked.Unserved: lambda: asked.Unserved(3, 5),
}
"""One of each kind, but those that show a credential."""
ACCESS: Final = {
    "tls": Access(tls_required=True),
    "a role": Access(roles=frozenset({"broker"})),
    "a password": Access(users={"broker": PASSWORD}),
    "both": Access(roles=frozenset({"broker"}), users={"broker": PASSWORD}),
}


def certificate(name: str) -> dict[str, Any]:
    return {"subject": ((("commonName", name),),)}


def shake(door: Door, user: str, password: str) -> None:
    """The hand-shake, whatever comes of it."""
    challenge = door.answer(asked.Auth(SASL, b"", 1))
    if isinstance(challenge, AuthDone) and challenge.payload:
        door.answer(asked.Auth(SASL, DigestClient(user, password, "c").answer(challenge.payload), 1))


SHOWN: Final[dict[str, Callable[[Door], object]]] = {
    "nothing": lambda _: None,
    "no certificate": lambda door: door.secured(None),
    "another's certificate": lambda door: door.secured(certificate("other")),
    "a certificate": lambda door: door.secured(certificate("broker")),
    "half a hand-shake": lambda door: door.answer(asked.Auth(SASL, b"", 1)),
    "a wrong password": lambda door: shake(door, "broker", "wrong"),
    "a stranger's password": lambda door: shake(door, "stranger", PASSWORD),
    "no password": lambda door: shake(door, "broker", ""),
    "another mechanism": lambda door: door.answer(asked.Auth("PLAIN", PASSWORD.encode(), 1)),
    "the password in clear": lambda door: shake(door, "broker", PASSWORD),
    "certificate and password": lambda door: (
        door.secured(certificate("broker")),
        shake(door, "broker", PASSWORD),
    ),
    "another's certificate, password": lambda door: (
        door.secured(certificate("other")),
        shake(door, "broker", PASSWORD),
    ),
}
LET_IN: Final = {
    "tls": {
        *("no certificate", "another's certificate", "a certificate"),
        *("certificate and password", "another's certificate, password"),
    },
    "a role": {"a certificate", "certificate and password"},
    "a password": {
        *("the password in clear", "certificate and password", "another's certificate, password"),
    },
    "both": {"certificate and password"},
}
"""Callers that may ask for everything."""


def test_every_request_is_here() -> None:
    assert {*REQUESTS, asked.Auth} == set(typing.get_args(asked.Request))


@pytest.mark.parametrize("wanted", ACCESS)
@pytest.mark.parametrize("shown", SHOWN)
def test_nothing_is_given_before_everything_was_shown(wanted: str, shown: str) -> None:
    for kind, make in REQUESTS.items():
        door = Door(ACCESS[wanted], lambda: "n0nce")
        SHOWN[shown](door)
        assert door.is_open == (shown in LET_IN[wanted]), kind
        if not door.is_open:
            answer = door.answer(make())
            status = getattr(answer, "status", Status.UNAUTHORIZED)
            assert status is Status.UNAUTHORIZED, (kind, answer)
            assert not door.is_open
