"""Credentials over a real socket: challenges, ends, proxies, and clients with bad manners."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from magnetar.wire import pulsar_pb2 as pb
from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

SECRET = b"0123456789abcdef0123456789abcdef"
LIFETIME_S = 1.5
RENEWS = pb.FeatureFlags(supports_auth_refresh=True)


def token(role: str, lifetime_s: float | None = None) -> str:
    claims: dict[str, Any] = {"sub": role}
    if lifetime_s is not None:
        claims["exp"] = time.time() + lifetime_s
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("wire")
    (folder / "secret").write_bytes(SECRET)
    settings = {
        "authentication": "token",
        "authentication_refresh_check_seconds": 1,
        "superuser_roles": "root,proxy",
        "proxy_roles": "proxy",
        "token_secret_key": str(folder / "secret"),
        "token_allowed_clock_skew_seconds": 0,
    }
    file = folder / "secure.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    options = ("--config", str(file))
    with StandaloneProcess(folder / "process", ephemeral=True, options=options) as running:
        yield running


def connect(data: str, **more: Any) -> bytes:
    fields: dict[str, Any] = {"client_version": "test", "protocol_version": 21, "auth_method_name": "token"}
    return command(Type.CONNECT, **fields, auth_data=data.encode(), **more)


def connected(process: StandaloneProcess, frame: bytes) -> RawClient:
    client = RawClient(process.broker_url, handshake=False)
    client.send(frame)
    client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
    return client


def respond(client: RawClient, data: bytes) -> None:
    response = pb.AuthData(auth_method_name="token", auth_data=data)
    client.send(command(Type.AUTH_RESPONSE, response=response, protocol_version=21))


def challenges(client: RawClient, count: int) -> None:
    client.wait(lambda: len(client.commands(Type.AUTH_CHALLENGE)) == count, f"{count} challenges")


def test_challenges_are_repeated_until_one_is_not_answered(process: StandaloneProcess) -> None:
    with connected(process, connect(token("root", LIFETIME_S), feature_flags=RENEWS)) as client:
        client.open_producer("persistent://public/default/wire")
        challenges(client, 1)
        assert len(client.publish(range(10))) == 10, "work goes on while the client is asked"
        respond(client, token("root", LIFETIME_S).encode())
        challenges(client, 2)
        client.wait_closed()
    assert "it did not renew them" in process.log_text()


def test_who_cannot_renew_is_closed_without_a_challenge(process: StandaloneProcess) -> None:
    with connected(process, connect(token("root", LIFETIME_S))) as client:
        client.wait_closed()
        assert not client.commands(Type.AUTH_CHALLENGE)


def test_a_proxys_client_is_challenged_through_the_proxy(process: StandaloneProcess) -> None:
    original = {"original_principal": "root", "original_auth_method": "token"}
    frame = connect(
        token("proxy"),
        **original,
        original_auth_data=token("root", LIFETIME_S),
        feature_flags=RENEWS,
        proxy_version="test",
    )
    with connected(process, frame) as client:
        challenges(client, 1)
        respond(client, token("proxy").encode())
        client.wait_closed()
        (error,) = client.commands(Type.ERROR)
        assert error.error == pb.AuthenticationError


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (connect(token("proxy")), pb.AuthorizationError),
        (connect(token("root"), original_principal="other"), pb.AuthorizationError),
        (connect(token("proxy"), original_principal="root"), pb.AuthenticationError),
        (connect("x" * 60_000), pb.AuthenticationError),
        (connect(token("root", -1)), pb.AuthenticationError),
        (connect(""), pb.AuthenticationError),
    ],
    ids=["a proxy for itself", "no proxy", "unproven", "huge", "ended", "empty"],
)
def test_refused(process: StandaloneProcess, frame: bytes, code: int) -> None:
    with RawClient(process.broker_url, handshake=False) as client:
        client.send(frame)
        client.wait_closed()
        (error,) = client.commands(Type.ERROR)
        assert error.error == code


def test_a_flood_of_answers_that_nobody_asked_for(process: StandaloneProcess) -> None:
    with connected(process, connect(token("root"))) as client:
        response = pb.AuthData(auth_method_name="token", auth_data=b"x" * 10_000)
        client.send(*[command(Type.AUTH_RESPONSE, response=response)] * 200)
        client.wait_closed()
        assert len(client.commands(Type.ERROR)) == 1
    with connected(process, connect(token("root"))):
        pass
