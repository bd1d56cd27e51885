"""The official client with tokens that end, tokens of an issuer, and rights that are taken away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.client.options import ClientOptions
from support.issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, LocalIssuer
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

SECRET = b"0123456789abcdef0123456789abcdef"
DEADLINE_S = 60.0
LIFETIME_S = 3.0
"""Of tokens that end while a test waits for it."""


def token(role: str, lifetime_s: float | None = None) -> str:
    claims: dict[str, Any] = {"sub": role}
    if lifetime_s is not None:
        claims["exp"] = time.time() + lifetime_s
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET))


@dataclass
class Secured:
    """A standalone that takes tokens of its own key and of an issuer."""

    process: StandaloneProcess
    issuer: LocalIssuer
    opened: list[pulsar.Client] = field(default_factory=list)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Calls the admin API as a superuser."""
        return self.process.admin(method, path, body, headers={"Authorization": f"Bearer {token('root')}"})

    def client(self, authentication: pulsar.Authentication) -> pulsar.Client:
        client = pulsar.Client(
            self.process.broker_url, authentication=authentication, operation_timeout_seconds=10
        )
        self.opened.append(client)
        return client

    def said(self, text: str, since: int = 0) -> bool:
        """Whether the log has this text, beyond so many characters."""
        return text in self.process.log_text()[since:]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneProcess, LocalIssuer]]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "secret").write_bytes(SECRET)
    with LocalIssuer(lifetime_s=lambda: LIFETIME_S) as issuer:
        settings = {
            "authentication": "token,openid",
            "authentication_refresh_check_seconds": 1,
            "superuser_roles": "root",
            "token_secret_key": str(folder / "secret"),
            "token_allowed_clock_skew_seconds": 0,
            "openid_issuers": issuer.url,
            "openid_audiences": AUDIENCE,
            # The client counts a token's life from when it came, and asks for no other before.
            "openid_accepted_time_leeway_seconds": 1,
            "openid_require_issuers_use_https": False,
            "openid_key_id_cache_miss_refresh_seconds": 1,
        }
        file = folder / "secure.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        options = ("--config", str(file))
        with serving(folder / "process", ephemeral=True, options=options) as running:
            yield running, issuer


@pytest.fixture
def secured(process: tuple[StandaloneProcess, LocalIssuer]) -> Iterator[Secured]:
    world = Secured(*process)
    for role in ("writer", CLIENT_ID):
        world.call("POST", f"namespaces/public/default/permissions/{role}", ["produce", "consume"])
    yield world
    for client in world.opened:
        client.close()


def send_until(producer: pulsar.Producer, condition: Callable[[], bool], what: str) -> None:
    """Publishes one after the other until the condition holds."""

    def sent() -> bool:
        producer.send(b"x")
        return condition()

    wait_until(sent, DEADLINE_S, what)


def connected_since(secured: Secured, topic: str) -> str:
    (publisher,) = secured.call("GET", f"persistent/public/default/{topic}/stats")["publishers"]
    return str(publisher["connectedSince"])


def test_a_supplier_renews_the_token_of_an_open_connection(secured: Secured) -> None:
    issued: list[str] = []

    def supply() -> str:
        issued.append(token("writer", LIFETIME_S))
        return issued[-1]

    client = secured.client(pulsar.AuthenticationToken(supply))
    producer = client.create_producer("renewed")
    since, log = connected_since(secured, "renewed"), len(secured.process.log_text())
    known = len(issued)
    send_until(producer, lambda: len(issued) >= known + 2, "two renewals")
    assert connected_since(secured, "renewed") == since
    assert not secured.said("closed: role 'writer'", log)


def test_a_token_that_is_not_renewed_ends_the_connection(secured: Secured) -> None:
    log = len(secured.process.log_text())
    client = secured.client(pulsar.AuthenticationToken(token("writer", LIFETIME_S)))
    client.create_producer("not-renewed").send(b"x")
    wait_until(lambda: secured.said("closed: role 'writer'", log), DEADLINE_S, "closed")
    assert secured.said("expired_token", log)


def oauth2(folder: Path, secured: Secured, secret: str = CLIENT_SECRET) -> pulsar.Authentication:
    key = folder / "client.json"
    key.write_text(
        json.dumps({"type": "client_credentials", "client_id": CLIENT_ID, "client_secret": secret})
    )
    parameters = {"issuer_url": secured.issuer.url, "private_key": str(key), "audience": AUDIENCE}
    return pulsar.AuthenticationOauth2(json.dumps(parameters))


def test_client_credentials_of_an_issuer(secured: Secured, tmp_path: Path) -> None:
    client = secured.client(oauth2(tmp_path, secured))
    producer = client.create_producer("issued")
    consumer = client.subscribe("issued", "s")
    producer.send(b"hello")
    assert consumer.receive(10_000).data() == b"hello"
    (form,) = secured.issuer.grants[-1:]
    assert form["grant_type"] == "client_credentials"
    secured.issuer.rotate(keep=True)
    log, grants = len(secured.process.log_text()), len(secured.issuer.grants)
    send_until(producer, lambda: len(secured.issuer.grants) > grants + 1, "renewal with the new key")
    assert "closed: role" not in secured.process.log_text()[log:]


def test_wrong_client_credentials(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(pulsar.PulsarException):
        secured.client(oauth2(tmp_path, secured, "wrong")).create_producer("issued")


def test_a_right_that_is_taken_away_ends_its_use(secured: Secured) -> None:
    client = secured.client(pulsar.AuthenticationToken(token("writer")))
    producer = client.create_producer("revoked", send_timeout_millis=1_000)
    producer.send(b"x")
    log = len(secured.process.log_text())
    secured.call("DELETE", "namespaces/public/default/permissions/writer")
    wait_until(lambda: secured.said("revoked: role 'writer'", log), DEADLINE_S, "revoked")
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"y")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("revoked")


def test_our_own_client_renews_too(secured: Secured) -> None:
    issued: list[str] = []

    def supply() -> str:
        issued.append(token("writer", LIFETIME_S))
        return issued[-1]

    options = ClientOptions(token_supplier=supply, retry_timeout_s=0, connect_timeout_s=10)
    with Client(secured.process.broker_url, options) as client:
        connection = client._lookup_connection()
        shown = len(issued)
        connection.wait(lambda: len(issued) > shown or None, "a challenge", DEADLINE_S)
        # A challenge that was answered well leaves the connection as it was.
        connection.wait(lambda: len(issued) > shown + 1 or None, "another challenge", DEADLINE_S)
        assert connection.is_open
    stale = ClientOptions(token=token("writer", -1), retry_timeout_s=0)
    with Client(secured.process.broker_url, stale) as client, pytest.raises(RefusedError, match="expired"):
        client._lookup_connection()
