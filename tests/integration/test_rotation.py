"""Certificates, keys, users and trust that change under a running broker, without a restart."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import ssl
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from passlib.hash import apr_md5_crypt

from support.certificates import Authority
from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

SECRET = b"0123456789abcdef0123456789abcdef"
DEADLINE_S = 60


def test_a_terminal_that_is_gone_stops_a_broker_in_order(tmp_path: Path) -> None:
    """SIGHUP says two things: read your files anew, and no operator sits before you any more."""
    ours, terminal = os.openpty()

    def sits_before_it() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "magnetar", "standalone", "--ephemeral", "--ready-file", str(ready)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", "0", "--http-port", "0"],
            stdin=terminal,
            stdout=log,
            stderr=log,
            preexec_fn=sits_before_it,
        )
    try:
        os.close(terminal)
        wait_until(lambda: ready.exists() or process.poll() is not None, DEADLINE_S, "ready")
        os.close(ours)
        assert process.wait(DEADLINE_S) == 0
        assert "SIGHUP: stopping" in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait(DEADLINE_S)


class Secured:
    """A broker and its files. Nothing is looked for in a test's time: SIGHUP has files read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "secret").write_bytes(SECRET)
        (folder / "revoked").write_text("")
        self.users("ali", "baba")
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("localhost")
        settings = {
            "authentication": "token,basic,tls",
            "credential_refresh_seconds": 3600,
            "authentication_refresh_check_seconds": 3600,
            "superuser_roles": "root",
            "metrics_roles": "root",
            "token_secret_key": str(folder / "secret"),
            "token_revoked_ids_file": str(folder / "revoked"),
            "basic_users": str(folder / "users"),
            "tls_certificate": str(certificate),
            "tls_key": str(key),
            "tls_ca": str(self.authority.file),
            "broker_tls_port": 0,
            "https_port": 0,
        }
        file = folder / "secure.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        self.process = StandaloneProcess(
            folder / "process", ephemeral=True, options=("--config", str(file))
        ).start()
        ready = json.loads((folder / "process" / "ready.json").read_text())
        self.tls_port = urlsplit(ready["broker_tls_url"]).port

    def users(self, *names: str) -> None:
        beside = self.folder / "users.new"
        beside.write_text("".join(f"{name}:{apr_md5_crypt.hash('open')}\n" for name in names))
        os.replace(beside, self.folder / "users")

    def read_anew(self) -> None:
        """Returns when the broker has read its files once more."""
        before = self._readings()
        os.kill(self.process.pid, signal.SIGHUP)
        wait_until(lambda: self._readings() > before, DEADLINE_S, "read again")

    def _readings(self) -> int:
        # The last of them, in the order of the settings.
        return self.process.log_text().count("credentials: tls read again")

    def closed(self, client: RawClient) -> None:
        client.wait_closed()
        assert "the client's credentials count no more" in self.process.log_text()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("rotation"))
    with made.process:
        yield made


def token(role: str, **claims: str) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role, **claims}, OctKey.import_key(SECRET))


def connected(secured: Secured, method: str, data: str) -> RawClient:
    client = RawClient(secured.process.broker_url, handshake=False)
    client.send(
        command(
            Type.CONNECT,
            client_version="test",
            protocol_version=21,
            auth_method_name=method,
            auth_data=data.encode(),
        )
    )
    client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
    return client


def answers(client: RawClient) -> None:
    before = len(client.commands(Type.PONG))
    client.send(command(Type.PING))
    client.wait(lambda: len(client.commands(Type.PONG)) > before, "PONG")


def test_a_user_who_is_gone_is_sent_away_and_others_stay(secured: Secured) -> None:
    with (
        connected(secured, "basic", "baba:open") as gone,
        connected(secured, "token", token("x")) as other,
    ):
        secured.users("ali")
        secured.read_anew()
        secured.closed(gone)
        answers(other)


def test_a_revoked_token_ends_and_is_refused(secured: Secured) -> None:
    stolen = token("x", jti="stolen")
    with connected(secured, "token", stolen) as client, connected(secured, "token", token("x")) as other:
        (secured.folder / "revoked").write_text("stolen\n")
        secured.read_anew()
        secured.closed(client)
        answers(other)
    with pytest.raises(urllib.error.HTTPError) as refused:
        secured.process.admin("GET", "tenants", headers={"Authorization": f"Bearer {stolen}"})
    assert refused.value.code == 401


def stale(secured: Secured) -> bool:
    headers = {"Authorization": f"Bearer {token('root')}"}
    asked = urllib.request.Request(f"{secured.process.http_url}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        return 'magnetar_credentials_stale{credential="basic"} 1' in answer.read().decode()


def test_a_broken_file_keeps_the_old_one(secured: Secured) -> None:
    with connected(secured, "basic", "ali:open") as client:
        whole = (secured.folder / "users").read_text()
        (secured.folder / "users").write_text("this is no list of users")
        secured.read_anew()
        assert stale(secured)
        said = "credentials: basic cannot be read again, the old ones stay in force"
        assert said in secured.process.log_text()
        answers(client)
        with connected(secured, "basic", "ali:open"):
            pass
        (secured.folder / "users").write_text(whole)
        secured.read_anew()
        assert not stale(secured)
        answers(client)


def shown(secured: Secured, trusted: Path, certificate: tuple[Path, Path] | None = None) -> RawClient:
    """A connection over TLS that shows a certificate."""
    context = ssl.create_default_context(cafile=trusted)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return RawClient(f"pulsar://127.0.0.1:{secured.tls_port}", handshake=False, tls=context)


def test_new_connections_get_the_new_certificate_and_the_new_trust(secured: Secured) -> None:
    mine = secured.authority.issue("root")
    assert let_in(secured, mine)
    with shown(secured, secured.authority.file, mine) as client:
        client.send(command(Type.CONNECT, client_version="test", protocol_version=21, auth_method_name="tls"))
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
        elsewhere = secured.folder / "elsewhere"
        elsewhere.mkdir()
        other = Authority(elsewhere)
        for made, name in zip(other.issue("localhost"), ("localhost.pem", "localhost.key"), strict=True):
            os.replace(made, secured.folder / name)
        os.replace(other.file, secured.authority.file)
        secured.read_anew()
        secured.closed(client)
    # The client trusts the new one only, which now has the old one's place.
    with shown(secured, secured.authority.file, other.issue("root")) as client:
        client.send(command(Type.CONNECT, client_version="test", protocol_version=21, auth_method_name="tls"))
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
    assert not let_in(secured, mine)


def let_in(secured: Secured, certificate: tuple[Path, Path]) -> bool:
    try:
        with shown(secured, secured.authority.file, certificate) as client:
            client.send(
                command(Type.CONNECT, client_version="test", protocol_version=21, auth_method_name="tls")
            )
            client.wait(lambda: client.closed or client.commands(Type.CONNECTED), "an answer")
            return bool(client.commands(Type.CONNECTED))
    except (ssl.SSLError, OSError):
        # Under TLS 1.3 the refusal comes after the client's part of the handshake.
        return False
