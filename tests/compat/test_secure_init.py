"""What `magnetar secure init` makes just works: a standalone, the official client over TLS with a token."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest

from support.official import QUIET, TIMEOUT_MS
from support.serving import serving

pytestmark = pytest.mark.process


class Secured(NamedTuple):
    """A running standalone with the files that it runs by."""

    folder: Path
    ready: dict[str, Any]

    def client(self, **credentials: Any) -> pulsar.Client:
        return pulsar.Client(
            self.ready["broker_tls_url"].replace("127.0.0.1", "localhost"),
            tls_trust_certs_file_path=str(self.folder / "ca.pem"),
            tls_validate_hostname=True,
            logger=QUIET,
            **credentials,
        )

    def token(self, role: str) -> pulsar.AuthenticationToken:
        return pulsar.AuthenticationToken((self.folder / "tokens" / f"{role}.token").read_text().strip())

    def command(self, *arguments: str, role: str = "admin") -> subprocess.CompletedProcess[str]:
        place = {
            "MAGNETAR_URL": self.ready["broker_tls_url"],
            "MAGNETAR_ADMIN_URL": self.ready["https_url"],
            "MAGNETAR_TOKEN_FILE": str(self.folder / "tokens" / f"{role}.token"),
            "MAGNETAR_TRUST_CERTS": str(self.folder / "ca.pem"),
        }
        return subprocess.run(
            [sys.executable, "-m", "magnetar", *arguments],
            env={**os.environ, **place},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("init") / "secure"
    made = [sys.executable, "-m", "magnetar", "secure", "init", str(folder), "--role", "orders"]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    free = {"MAGNETAR_BROKER_TLS_PORT": "0", "MAGNETAR_HTTPS_PORT": "0"}
    options = ("--config", str(folder / "secure.toml"))
    with serving(folder.parent / "process", ephemeral=True, options=options, environment=free) as process:
        yield Secured(folder, json.loads((process.folder / "ready.json").read_text()))


def test_tokens_and_certificates_work_and_denials_are_explained(secured: Secured) -> None:
    client = secured.client(authentication=secured.token("admin"))
    consumer = client.subscribe("t", "s")
    client.create_producer("t").send(b"hello")
    assert consumer.receive(TIMEOUT_MS).data() == b"hello"
    client.close()

    by_certificate = secured.client(
        authentication=pulsar.AuthenticationTLS(
            str(secured.folder / "clients" / "admin.pem"), str(secured.folder / "clients" / "admin.key")
        )
    )
    by_certificate.create_producer("t").send(b"hello")
    by_certificate.close()

    asked = ("auth", "can-i", "produce", "t", "-o", "json")
    denied = secured.command(*asked, "--as", "orders")
    answer = json.loads(denied.stdout)
    assert (denied.returncode, answer["allowed"]) == (3, False)
    with pytest.raises(pulsar.AuthorizationError):
        secured.client(authentication=secured.token("orders")).create_producer("t")
    # What it says would help does help.
    assert secured.command(*answer["remedy"].split()[1:]).returncode == 0
    own = secured.command(*asked, role="orders")
    assert (own.returncode, json.loads(own.stdout)["role"]) == (0, "orders")
    client = secured.client(authentication=secured.token("orders"))
    client.create_producer("t").send(b"hello")
    client.close()


def test_strangers_are_refused(secured: Secured) -> None:
    with pytest.raises(pulsar.PulsarException):
        secured.client(operation_timeout_seconds=2).create_producer("t")


def test_the_doctor_reads_the_certificate_and_top_asks_with_the_token(secured: Secured) -> None:
    found = {each["check"]: each for each in json.loads(secured.command("doctor", "-o", "json").stdout)}
    assert found["certificate"] == {
        "check": "certificate",
        "state": "ok",
        "detail": found["certificate"]["detail"],
    }
    assert "364 days" in found["certificate"]["detail"] or "365 days" in found["certificate"]["detail"]
    states = {
        each["check"]: each["state"]
        for each in json.loads(secured.command("doctor", "-o", "json", role="orders").stdout)
    }
    # A role that may not ask has not found a fault.
    assert (states["certificate"], states["health"]) == ("ok", "doubtful")
    shown = secured.command("top", "--looks", "1", "--interval", "0.1", "-o", "json")
    assert shown.returncode == 0, shown.stderr


def test_prometheus_may_read_the_metrics_and_nothing_else(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.folder / "ca.pem"))

    def status(path: str, role: str) -> int:
        request = urllib.request.Request(f"{secured.ready['https_url']}{path}")
        request.add_header(
            "Authorization", f"Bearer {(secured.folder / 'tokens' / f'{role}.token').read_text().strip()}"
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status("/metrics", "prometheus") == status("/metrics", "admin") == 200
    assert status("/metrics", "orders") == 403
    assert status("/admin/v2/tenants", "prometheus") == 403
