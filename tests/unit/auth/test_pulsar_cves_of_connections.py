"""What went wrong where Pulsar's parts connect to each other, tried here: tests that name the CVE.

The ones of the admin API are in `tests/unit/admin/access/test_pulsar_cves.py`.
"""

from __future__ import annotations

import hmac
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from magnetar.adminclient.errors import AdminUnreachableError
from magnetar.adminclient.http import AdminHttp
from magnetar.adminclient.target import AdminTarget
from magnetar.auth.authentication import Authentication
from magnetar.auth.digest_md5 import DigestClient, DigestError, DigestServer
from magnetar.auth.https_fetch import HttpsFetch
from magnetar.auth.token import TokenProvider, secret_key
from magnetar.client.connection import Connection
from magnetar.client.errors import UnreachableError
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.server.bookies.ledger_access import client_options
from magnetar.server.settings.config import StandaloneConfig
from support.certificates import Authority
from support.websockets import Clients, with_clients

SECRET = "top-secret"
ELSEWHERE = "127.0.0.2"
"""An address of this machine that no certificate names."""


class Impostor:
    """Has a certificate that is trusted and names another role; keeps what it is told."""

    def __init__(self, authority: Authority) -> None:
        self.told = b""
        self.failures: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.issue("broker"))
        self._listener = socket.create_server((ELSEWHERE, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answers one client; when it ends, everything that was said is known."""
        self._thread.start()
        try:
            yield
        finally:
            self._thread.join(60)
            self._listener.close()

    def _serve(self) -> None:
        self._listener.settimeout(30)
        plain, _ = self._listener.accept()
        plain.settimeout(30)
        with plain, suppress(OSError), self._context.wrap_socket(plain, server_side=True) as secured:
            while data := secured.recv(1 << 16):
                self.told += data


def by_the_client(authority: Authority, port: int) -> None:
    options = ClientOptions(token=SECRET, tls_trust_certs_file=str(authority.file))
    with pytest.raises(UnreachableError, match="TLS"):
        Connection(ServiceUrl.parse(f"pulsar+ssl://{ELSEWHERE}:{port}"), options)


def by_the_admin_client(authority: Authority, port: int) -> None:
    target = AdminTarget(url=f"https://{ELSEWHERE}:{port}", token=SECRET, trust_certs=authority.file)
    with AdminHttp(target) as http, pytest.raises(AdminUnreachableError, match="certificate"):
        http.request("GET", "/admin/v2/tenants")


def by_who_asks_issuers(authority: Authority, port: int) -> None:
    with pytest.raises(OSError, match="certificate"):
        HttpsFetch(authority.file)(f"https://{ELSEWHERE}:{port}/{SECRET}")


def by_the_ledger_client(authority: Authority, port: int) -> None:
    options = client_options(StandaloneConfig(bookie_tls=True, bookie_tls_ca=authority.file))
    assert options.tls is not None
    with (
        socket.create_connection((ELSEWHERE, port), 30) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        options.tls.wrap_socket(plain, server_hostname=ELSEWHERE)


@pytest.mark.parametrize(
    "connect",
    [
        pytest.param(by_the_client, id="CVE-2022-33681, a client"),
        pytest.param(by_the_ledger_client, id="CVE-2022-33682, a broker"),
        pytest.param(by_the_admin_client, id="CVE-2022-33683, the admin client"),
        pytest.param(by_who_asks_issuers, id="CVE-2022-33684, who asks an issuer"),
    ],
)
def test_whose_certificate_names_another_host_is_told_nothing(
    tmp_path: Path, connect: Callable[[Authority, int], None]
) -> None:
    """Pulsar's sent credentials before it looked, or never looked."""
    authority = Authority(tmp_path)
    impostor = Impostor(authority)
    with impostor.serving():
        connect(authority, impostor.port)
    assert impostor.told == b""


def test_cve_2022_32531_a_bookie_that_names_another_host() -> None:
    """BookKeeper's client checked no names of hosts: ours does unless it is told not to."""
    asked = client_options(StandaloneConfig(bookie_tls=True)).tls
    waived = client_options(StandaloneConfig(bookie_tls=True, bookie_tls_hostnames=False)).tls
    assert asked is not None
    assert waived is not None
    assert (asked.check_hostname, asked.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (waived.check_hostname, waived.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_cve_2023_51437_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever decides whether a proof is right decides by `compare_digest` alone."""

    def shaken() -> bytes:
        server = DigestServer({"me": SECRET}, "n0nce")
        return server.answer(DigestClient("me", "wrong", "c").answer(server.challenge()))

    with pytest.raises(DigestError):
        shaken()
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    assert shaken().startswith(b"rspauth=")


def test_cve_2023_37544_no_socket_without_credentials() -> None:
    """Pulsar's WebSocket proxy had an endpoint for pings that asked for none."""

    async def story(clients: Clients) -> None:
        for path in ("pingpong", "v2/pingpong", "v2/pingpong/persistent/public/default/t", "", "v2"):
            client = clients.start(path)
            assert await client.opened() in (401, 404), path

    chain = Authentication({"token": TokenProvider(secret_key(b"s" * 32))})
    with_clients(story, authentication=chain, superuser_roles=frozenset(("root",)))
