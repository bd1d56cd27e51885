"""The official client against a standalone with TLS, tokens, passwords and grants."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest
import websocket
from joserfc import jwt
from joserfc.jwk import OctKey
from passlib.hash import apr_md5_crypt

from support.certificates import Authority
from support.serving import serving
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

SECRET = b"0123456789abcdef0123456789abcdef"
TIMEOUT_MS = 10_000
TIMEOUT_S = TIMEOUT_MS / 1000


def token(role: str) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role}, OctKey.import_key(SECRET))


@dataclass
class Secured:
    """A running standalone and what its clients need."""

    process: StandaloneProcess
    authority: Authority
    broker_tls_url: str
    https_url: str

    def call(self, method: str, path: str, body: object = None, role: str = "root") -> int:
        """Status of a call of the admin API over TLS."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.https_url}/admin/v2/{path}", data, method=method)
        if role:
            request.add_header("Authorization", f"Bearer {token(role)}")
        context = ssl.create_default_context(cafile=str(self.authority.file))
        try:
            with urllib.request.urlopen(request, context=context) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def client(
        self, authentication: pulsar.Authentication | None = None, *, tls: bool = True, **more: Any
    ) -> pulsar.Client:
        """A client of the TLS or the plain port."""
        if not tls:
            return pulsar.Client(self.process.broker_url, authentication=authentication, **more)
        return pulsar.Client(
            self.broker_tls_url,
            authentication=authentication,
            tls_trust_certs_file_path=str(self.authority.file),
            tls_validate_hostname=True,
            **more,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    certificate, key = authority.issue("broker")
    (folder / "secret").write_bytes(SECRET)
    (folder / "users").write_text(f"writer:{apr_md5_crypt.hash('secret')}\n")
    settings = {
        "host": "localhost",
        "tls_certificate": str(certificate),
        "tls_key": str(key),
        "tls_ca": str(authority.file),
        "broker_tls_port": 0,
        "https_port": 0,
        "authentication": "tls,token,basic",
        "superuser_roles": "root",
        "token_secret_key": str(folder / "secret"),
        "basic_users": str(folder / "users"),
    }
    file = folder / "secure.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    with serving(folder / "process", ephemeral=True, options=("--config", str(file))) as process:
        ready = json.loads((process.folder / "ready.json").read_text())
        world = Secured(process, authority, ready["broker_tls_url"], ready["https_url"])
        for role, actions in (("writer", ["produce"]), ("reader", ["consume"])):
            assert world.call("POST", f"namespaces/public/default/permissions/{role}", actions) == 204
        yield world


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_roles_do_what_they_may(secured: Secured, tls: bool) -> None:
    topic = f"roles-{tls}"
    writer = secured.client(pulsar.AuthenticationBasic("writer", "secret"), tls=tls)
    reader = secured.client(pulsar.AuthenticationToken(token("reader")), tls=tls)
    consumer = reader.subscribe(topic, "s")
    producer = writer.create_producer(topic)
    producer.send(b"hello")
    message = consumer.receive(TIMEOUT_MS)
    assert message.data() == b"hello"
    consumer.acknowledge(message)
    with pytest.raises(pulsar.AuthorizationError):
        reader.create_producer(topic)
    with pytest.raises(pulsar.AuthorizationError):
        writer.subscribe(topic, "s2")
    for client in (writer, reader):
        client.close()


def test_the_role_of_a_certificate(secured: Secured) -> None:
    certificate, key = secured.authority.issue("root")
    client = secured.client(pulsar.AuthenticationTLS(str(certificate), str(key)))
    client.create_producer("certificate").send(b"x")
    client.close()


@pytest.mark.parametrize(
    "authentication",
    [
        None,
        pulsar.AuthenticationBasic("writer", "wrong"),
        pulsar.AuthenticationToken("a.b.c"),
        pulsar.AuthenticationToken(token("writer")[:-4] + "AAAA"),
    ],
    ids=["none", "password", "no token", "signature"],
)
def test_others_are_refused(secured: Secured, authentication: pulsar.Authentication | None) -> None:
    before = secured.process.log_text().count("refused: credentials")
    client = secured.client(authentication, operation_timeout_seconds=2)
    # This client takes the refusal of a CONNECT for a lost connection and tries again until its time is up.
    with pytest.raises(pulsar.Timeout):
        client.create_producer("refused")
    wait_until(
        lambda: secured.process.log_text().count("refused: credentials") > before,
        TIMEOUT_MS / 1000,
        "refused",
    )
    client.close()


def test_the_admin_api(secured: Secured) -> None:
    assert secured.call("GET", "tenants") == 200
    assert secured.call("GET", "tenants", role="writer") == 403
    assert secured.call("GET", "tenants", role="") == 401
    log = secured.process.log_text()
    assert "refused: role 'writer'" in log
    assert token("writer") not in log


@pytest.mark.one_process("start")
def test_no_start_for_everybody_without_intent(tmp_path: Path) -> None:
    process = StandaloneProcess(tmp_path, ephemeral=True, options=("--host", "0.0.0.0"))
    with pytest.raises(AssertionError, match="every client could do everything"):
        process.start()
    process.kill()
    with StandaloneProcess(tmp_path, ephemeral=True, options=("--host", "0.0.0.0", "--insecure")) as running:
        assert running.broker_url


def test_the_command_line_over_tls(secured: Secured, tmp_path: Path) -> None:
    """Tokens lie in files, the broker's certificate is checked, the exit code tells of a missing right."""

    def magnetar(*arguments: str, role: str, code: int = 0) -> str:
        file = tmp_path / role
        file.write_text(token(role))
        options = ["--token-file", str(file), "--trust-certs", str(secured.authority.file)]
        options += ["--url", secured.broker_tls_url, "--admin-url", secured.https_url]
        ended = subprocess.run(
            [sys.executable, "-m", "magnetar", *arguments, *options],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout + ended.stderr

    assert "public" in magnetar("tenants", "list", role="root")
    magnetar("tenants", "list", role="reader", code=3)
    magnetar("produce", "cli", "x", role="writer")
    magnetar("produce", "cli", "x", role="reader", code=3)
    assert magnetar("consume", "cli", role="root") == "x\n"
    refused = subprocess.run(
        [sys.executable, "-m", "magnetar", "tenants", "list", "--admin-url", secured.https_url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (refused.returncode, "check --trust-certs" in refused.stderr) == (5, True), refused.stderr


@pytest.mark.one_process("alone")
def test_websockets_over_tls_by_token_password_and_certificate(secured: Secured) -> None:
    url = secured.https_url.replace("https", "wss", 1) + "/ws/v2"
    trust = {"ca_certs": str(secured.authority.file)}
    certificate, key = secured.authority.issue("writer")
    proven = {**trust, "certfile": str(certificate), "keyfile": str(key)}
    secret = base64.b64encode(b"writer:secret").decode()
    name = "persistent/public/default/sockets"
    for options in ({"sslopt": proven}, {"sslopt": trust, "header": [f"Authorization: Basic {secret}"]}):
        producer = websocket.create_connection(f"{url}/producer/{name}", timeout=TIMEOUT_S, **options)
        producer.send(json.dumps({"payload": ""}))
        assert json.loads(producer.recv())["result"] == "ok"
        producer.close()
    path = f"{url}/consumer/{name}/s"
    for query, status in (("", 401), (f"?token={token('writer')}", 403)):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            websocket.create_connection(path + query, timeout=TIMEOUT_S, sslopt=trust)
        assert refused.value.status_code == status
    allowed = f"{path}?token={token('reader')}"
    websocket.create_connection(allowed, timeout=TIMEOUT_S, sslopt=trust).close()
    refusals = secured.process.log_text().splitlines()
    assert any("refused" in line and "consume" in line and "writer" in line for line in refusals)
