"""Files that change under a running proxy, and its HTTPS port: no restart, and open connections stay."""

from __future__ import annotations

import json
import os
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from support.certificates import Authority
from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

SECRET = b"0123456789abcdef0123456789abcdef"
DEADLINE_S = 60


def token(role: str) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role}, OctKey.import_key(SECRET))


class Renewed:
    """A proxy with TLS, whose token for brokers is a file. Only SIGHUP has files read in a test's time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "secret").write_bytes(SECRET)
        (folder / "own.token").write_text(token("stranger"))
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("proxy.example")
        self.certificate, self.key = certificate, key
        common = {"token_secret_key": str(folder / "secret"), "superuser_roles": "root,proxy"}
        of_broker, its_key = self.authority.issue("broker.example")
        self.broker = self._started(
            "broker",
            authentication="token",
            proxy_roles="proxy",
            tls_certificate=str(of_broker),
            tls_key=str(its_key),
            broker_tls_port=0,
            https_port=0,
            **common,
        )
        served = json.loads((folder / "broker" / "ready.json").read_text())
        self.proxy = self._started(
            "proxy",
            authentication="token,tls",
            brokers=served["broker_tls_url"],
            brokers_http=served["https_url"],
            broker_tls=True,
            broker_tls_ca=str(self.authority.file),
            broker_token=f"file://{folder / 'own.token'}",
            forward_credentials=True,
            credential_refresh_seconds=3600,
            tls_certificate=str(certificate),
            tls_key=str(key),
            tls_ca=str(self.authority.file),
            broker_tls_port=0,
            https_port=0,
            **common,
        )
        ready = json.loads((folder / "proxy" / "ready.json").read_text())
        self.https_url = ready["https_url"].replace("127.0.0.1", "localhost")

    def _started(self, role: str, **settings: object) -> StandaloneProcess:
        file = self.folder / f"{role}.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        options = ("--config", str(file))
        if role == "proxy":
            return StandaloneProcess(self.folder / role, role=role, options=options).start()
        return StandaloneProcess(self.folder / role, ephemeral=True, options=options).start()

    def read_anew(self) -> None:
        def readings() -> int:
            text = self.proxy.log_text()
            return min(text.count(f"{what} read again") for what in ("token for brokers", "serving tls"))

        before = readings()
        os.kill(self.proxy.pid, signal.SIGHUP)
        wait_until(lambda: readings() > before, DEADLINE_S, "read again")

    def get(self, path: str, role: str = "", context: ssl.SSLContext | None = None) -> int:
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        request = urllib.request.Request(self.https_url + path, headers=headers)
        try:
            with urllib.request.urlopen(
                request, timeout=DEADLINE_S, context=context or self.context()
            ) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.file))

    def shown(self) -> str:
        port = urlsplit(self.https_url).port
        assert port is not None
        return ssl.get_server_certificate(("localhost", port), ca_certs=str(self.authority.file))


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renewed]:
    made = Renewed(tmp_path_factory.mktemp("renewed"))
    try:
        yield made
    finally:
        made.proxy.stop()
        made.broker.stop()


def test_the_admin_api_is_passed_on_over_https(renewed: Renewed) -> None:
    assert renewed.get("/status.html") == 200
    assert renewed.get("/admin/v2/tenants") == 401
    assert renewed.get("/metrics", "root") == 200
    assert renewed.get("/metrics", "alice") == 403


def test_a_certificate_is_a_credential_over_https(renewed: Renewed) -> None:
    for role, expected in (("root", 200), ("alice", 403)):
        certificate, key = renewed.authority.issue(role)
        context = renewed.context()
        context.load_cert_chain(certificate, key)
        assert renewed.get("/proxy-stats", context=context) == expected


def test_files_that_change_are_read_on_sighup(renewed: Renewed) -> None:
    with RawClient(renewed.proxy.broker_url, handshake=False) as client:
        shown = {"auth_method_name": "token", "auth_data": token("root").encode()}
        client.send(command(Type.CONNECT, client_version="t", protocol_version=21, **shown))
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
        # The broker does not take the proxy for one yet.
        assert renewed.get("/admin/v2/tenants", "root") in (401, 403)
        before = renewed.shown()
        certificate, key = renewed.authority.issue("later.example")
        os.replace(key, renewed.key)
        os.replace(certificate, renewed.certificate)
        (renewed.folder / "own.token").write_text(token("proxy"))
        renewed.read_anew()
        assert renewed.shown() != before
        assert renewed.get("/admin/v2/tenants", "root") == 200
        # It connects to the broker now, with the new token.
        ask = command(Type.PARTITIONED_METADATA, topic="persistent://public/default/t", request_id=1)
        client.send(ask)
        client.wait(lambda: client.commands(Type.PARTITIONED_METADATA_RESPONSE), "an answer")
        (answer,) = client.commands(Type.PARTITIONED_METADATA_RESPONSE)
        assert not answer.error


def test_a_file_that_cannot_be_used_leaves_what_was_there(renewed: Renewed) -> None:
    good = renewed.certificate.read_bytes()
    renewed.certificate.write_text("damaged")
    os.kill(renewed.proxy.pid, signal.SIGHUP)
    wait_until(lambda: "serving tls cannot be read again" in renewed.proxy.log_text(), DEADLINE_S, "logged")
    assert renewed.get("/status.html") == 200
    renewed.certificate.write_bytes(good)
    renewed.read_anew()
