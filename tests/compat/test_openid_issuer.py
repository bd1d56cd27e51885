"""Tokens of a real OpenID Connect issuer: by code and by client credentials, new keys, wrong hands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.error import HTTPError

import pulsar
import pytest

from support.drivers import NotHereError
from support.openid_server import PROGRAM, OpenIdServer
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

AUDIENCE = "urn:streams:broker"
DEADLINE_S = 60


class World(NamedTuple):
    """A broker that takes the tokens of one of two issuers."""

    process: StandaloneProcess
    issuer: OpenIdServer
    stranger: OpenIdServer

    def status(self, token: str) -> int:
        """The status of a call for superusers only: 401 without credentials, 403 for other roles."""
        try:
            self.process.admin("GET", "clusters/standalone/failureDomains", headers=bearer(token))
        except HTTPError as error:
            return error.code
        return 200


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("openid")
    try:
        with OpenIdServer(AUDIENCE) as issuer, OpenIdServer(AUDIENCE) as stranger:
            settings = {
                "authentication": "openid",
                "authentication_refresh_check_seconds": 1,
                "superuser_roles": f"{PROGRAM[0]},ali",
                "openid_issuers": issuer.url,
                "openid_audiences": AUDIENCE,
                "openid_accepted_time_leeway_seconds": 60,
                "openid_require_issuers_use_https": False,
                "openid_key_id_cache_miss_refresh_seconds": 1,
            }
            file = folder / "secure.toml"
            file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
            options = ("--config", str(file))
            with serving(folder / "process", ephemeral=True, options=options) as process:
                yield World(process, issuer, stranger)
    except NotHereError as error:
        pytest.skip(str(error))


def exchange(world: World, authentication: pulsar.Authentication, topic: str) -> None:
    client = pulsar.Client(
        world.process.broker_url, authentication=authentication, operation_timeout_seconds=30
    )
    try:
        consumer = client.subscribe(topic, "all")
        client.create_producer(topic).send(b"x")
        assert consumer.receive(DEADLINE_S * 1000).data() == b"x"
    finally:
        client.close()


def test_a_program_by_client_credentials(world: World) -> None:
    parameters = {
        "issuer_url": world.issuer.url,
        "client_id": PROGRAM[0],
        "client_secret": PROGRAM[1],
        "audience": AUDIENCE,
    }
    exchange(world, pulsar.AuthenticationOauth2(json.dumps(parameters)), "by-credentials")


def test_a_person_by_code(world: World) -> None:
    access, identity = world.issuer.by_code("ali")
    assert world.status(access) == 200
    exchange(world, pulsar.AuthenticationToken(access), "by-code")
    assert world.status(world.issuer.by_code("baba")[0]) == 403, "he is known, and may not"
    # It tells the client which role came, and is not meant for the broker.
    assert world.status(identity) == 401


def test_tokens_that_are_none_of_ours(world: World) -> None:
    good = world.issuer.by_credentials()
    assert world.status(good) == 200
    assert world.status(world.stranger.by_credentials()) == 401
    assert world.status(world.issuer.by_credentials(resource="urn:streams:elsewhere")) == 401
    header, body, signature = good.split(".")
    foreign = world.stranger.by_credentials().split(".")
    for forged in (
        f"{header}.{foreign[1]}.{signature}",
        f"{foreign[0]}.{body}.{foreign[2]}",
        f"{header}.{body}.",
    ):
        assert world.status(forged) == 401


def test_a_new_key_is_found_and_an_old_one_that_is_taken_back_ends(world: World) -> None:
    old = world.issuer.by_credentials()
    assert world.status(old) == 200
    world.issuer.tell("rotate")
    new = world.issuer.by_credentials()
    assert new.split(".")[0] != old.split(".")[0], "it names another key"
    wait_until(lambda: world.status(new) == 200, DEADLINE_S, "the new key is known")
    assert world.status(old) == 200, "both are published"
    client = pulsar.Client(world.process.broker_url, authentication=pulsar.AuthenticationToken(old))
    try:
        client.create_producer("open")
        world.issuer.tell("drop")
        world.issuer.tell("rotate")

        def known() -> bool:
            # Only a key that is not known makes the broker ask again.
            return world.status(world.issuer.by_credentials()) == 200

        wait_until(known, DEADLINE_S, "the newest key is known")
        assert world.status(new) == 200
        assert world.status(old) == 401
        said = "closed: role 'orders'"
        wait_until(lambda: said in world.process.log_text(), DEADLINE_S, "its connection ended")
    finally:
        client.close()
