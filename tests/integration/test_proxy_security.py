"""A proxy that authenticates clients, before a broker that does: tokens and TLS, with the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pulsar
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from support.certificates import Authority
from support.official import QUIET
from support.raw_client import RawClient
from support.serving import serving
from support.sessions import Type, command
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process

SECRET = b"0123456789abcdef0123456789abcdef"


def token(role: str) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role}, OctKey.import_key(SECRET))


@dataclass
class Guarded:
    broker: StandaloneProcess
    proxy: StandaloneProcess
    tls_url: str
    authority: Path

    def client(self, shown: str, *, tls: bool = False) -> pulsar.Client:
        return pulsar.Client(
            self.tls_url if tls else self.proxy.broker_url,
            authentication=pulsar.AuthenticationToken(shown),
            operation_timeout_seconds=30,
            logger=QUIET,
            tls_trust_certs_file_path=str(self.authority) if tls else None,
        )


@pytest.fixture(scope="module", params=[True, False], ids=["forwarded", "trusted"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "secret").write_bytes(SECRET)
    authority = Authority(folder)
    certificate, key = authority.issue("proxy.example")
    common = {"authentication": "token", "token_secret_key": str(folder / "secret")}
    _write(
        folder / "broker.toml",
        **common,
        superuser_roles="root,proxy",
        proxy_roles="proxy",
        authenticate_original_auth_data=request.param,
    )
    with serving(
        folder / "broker", ephemeral=True, options=("--config", str(folder / "broker.toml"))
    ) as broker:
        root = {"Authorization": f"Bearer {token('root')}"}
        broker.admin("POST", "namespaces/public/default/permissions/alice", ["produce"], headers=root)
        _write(
            folder / "proxy.toml",
            **common,
            brokers=broker.broker_url,
            brokers_http=",".join(broker.http_urls),
            superuser_roles="root",
            broker_token=token("proxy"),
            forward_credentials=request.param,
            tls_certificate=str(certificate),
            tls_key=str(key),
            broker_tls_port=0,
            https_port=0,
        )
        options = ("--config", str(folder / "proxy.toml"))
        with StandaloneProcess(folder / "proxy", role="proxy", options=options) as proxy:
            ready = json.loads((folder / "proxy" / "ready.json").read_text())
            url = ready["broker_tls_url"].replace("127.0.0.1", "localhost")
            yield Guarded(broker, proxy, url, authority.file)


def _write(file: Path, **settings: object) -> None:
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_client_has_its_own_rights_behind_the_proxy(guarded: Guarded, tls: bool) -> None:
    client = guarded.client(token("alice"), tls=tls)
    producer = client.create_producer("rights")
    producer.send(b"mine")
    with pytest.raises(pulsar.AuthorizationError):
        client.subscribe("rights", "s")
    client.close()


def test_the_proxys_rights_are_not_the_clients(guarded: Guarded) -> None:
    client = guarded.client(token("bob"))
    # The proxy's role is a superuser, and bob has no grant.
    with pytest.raises((pulsar.AuthorizationError, pulsar.ConnectError)):
        client.create_producer("rights")
    client.close()


def test_wrong_credentials_reach_no_broker(guarded: Guarded) -> None:
    before = guarded.broker.log_text()
    named = guarded.broker.broker_url.removeprefix("pulsar://")
    for target in ("", named):
        with RawClient(guarded.proxy.broker_url, handshake=False) as client:
            client.send(
                command(
                    Type.CONNECT,
                    client_version="t",
                    auth_method_name="token",
                    auth_data=b"forged",
                    proxy_to_broker_url=target,
                )
            )
            client.wait(lambda: client.closed, "refused")
            assert client.commands(Type.ERROR)
    assert guarded.broker.log_text() == before


def test_a_client_does_not_get_a_proxys_role(guarded: Guarded) -> None:
    client = guarded.client(token("proxy"))
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("rights")
    client.close()


def test_calls_have_the_rights_of_the_client(guarded: Guarded) -> None:
    def call(role: str, **more: str) -> int:
        headers = {"Authorization": f"Bearer {token(role)}", **more}
        try:
            guarded.proxy.admin("GET", "tenants", headers=headers)
        except HTTPError as error:
            return error.code
        return 200

    assert call("root") == 200
    assert call("alice") in (401, 403)
    # A claim of the client's own does not count.
    assert call("alice", **{"X-Original-Principal": "root"}) in (401, 403)
    assert call("proxy") in (401, 403)


def test_figures_of_the_proxy_are_for_superusers(guarded: Guarded) -> None:
    def get(path: str, role: str) -> int:
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        try:
            return int(urlopen(Request(guarded.proxy.http_url + path, headers=headers), timeout=60).status)
        except HTTPError as error:
            return error.code

    for path in ("/metrics", "/proxy-stats"):
        assert [get(path, role) for role in ("", "alice", "root")] == [401, 403, 200]
    assert get("/status.html", "") == 200


def test_a_client_does_not_say_which_role_it_speaks_for(guarded: Guarded) -> None:
    with RawClient(guarded.proxy.broker_url, handshake=False) as client:
        client.send(
            command(
                Type.CONNECT,
                client_version="t",
                auth_method_name="token",
                auth_data=token("bob").encode(),
                original_principal="root",
            )
        )
        client.wait(lambda: client.closed, "refused")
        assert client.commands(Type.ERROR)
