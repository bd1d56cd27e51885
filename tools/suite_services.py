"""The brokers that the official Python client's own tests expect, started from their own configuration.

The suite's test service is a standalone with TLS, client certificates, tokens and passwords, on fixed
ports, with some tenants and namespaces. What a tool of the suite would make in a container is made here:
the key that signs tokens, the token of the tests, tenants, namespaces and grants.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

PORTS = (6650, 6651, 8080, 8443)
READY_DEADLINE_S = 30
STOP_DEADLINE_S = 30
CLUSTER = "standalone"
OPEN_NAMESPACES = ("public/default", "public/default-2")
"""Namespaces in which every role may produce and consume."""
CLOSED_NAMESPACE = "private/auth"
TOKEN_ROLE = "token-principal"  # a role
TOKEN_FILE = ".test-token.txt"  # a file's name
SUPERUSER = "superUser"


def make_token(role: str, key: bytes) -> str:
    """A JSON web token for `role`, signed by HMAC-SHA256 (RFC 7515, RFC 7519)."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    header, claims = b'{"alg":"HS256"}', json.dumps({"sub": role}).encode()
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def check_ports(ports: tuple[int, ...] = PORTS) -> None:
    """Raises SystemExit when one is in use: the suite's addresses cannot be changed."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise SystemExit(f"port {port}, which the suite uses, is taken: {error.strerror}") from error


@contextlib.contextmanager
def standalone(
    folder: Path, *arguments: str, environment: Mapping[str, str], cwd: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ready, with its data and its log in `folder`; it is stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    # Settings in the environment of the command must not change the standalone under test.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAGNETAR_", "PULSAR_"))}
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(folder / "data")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready), *arguments],
            env={**kept, **environment},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        end = time.monotonic() + READY_DEADLINE_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the standalone did not start:\n" + (folder / "log").read_text())
            time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def test_service(tests: Path, folder: Path) -> Iterator[None]:
    """The suite's test service; `tests` is its folder of tests, where the tests' token is left."""
    check_ports()
    key = secrets.token_bytes(32)
    configuration = tests / "test-conf" / "standalone-ssl.conf"
    environment = {
        "PULSAR_PREFIX_tokenSecretKey": f"data:;base64,{base64.b64encode(key).decode()}",
        "PULSAR_EXTRA_OPTS": "-Dpulsar.auth.basic.conf=test-conf/.htpasswd",
    }
    (tests / TOKEN_FILE).write_text(make_token(TOKEN_ROLE, key) + "\n")
    # Loopback is enough for the tests, whatever their configuration binds.
    arguments = ("--config", str(configuration), "--host", "127.0.0.1")
    with standalone(folder, *arguments, environment=environment, cwd=tests):
        _furnish(make_token(SUPERUSER, key))
        yield


@contextlib.contextmanager
def plain_service(tests: Path, folder: Path) -> Iterator[None]:
    """The suite's standalone without TLS and authentication, on the same ports."""
    check_ports()
    configuration = tests / "test-conf" / "standalone.conf"
    # That configuration is older than its tests and has ports of its own.
    environment = {"MAGNETAR_BROKER_PORT": "6650", "MAGNETAR_HTTP_PORT": "8080"}
    with standalone(folder, "--config", str(configuration), environment=environment, cwd=tests):
        yield


def _furnish(token: str) -> None:
    """Makes what the tests expect, as the suite's own start script does; what exists is changed."""

    def call(method: str, path: str, body: object, allowed: tuple[int, ...]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=READY_DEADLINE_S)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request(method, f"/admin/v2/{path}", json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        if response.status not in allowed:
            raise SystemExit(f"{method} {path} was answered {response.status}: {text}")
        return response.status

    def put(path: str, body: object) -> None:
        if call("PUT", path, body, (200, 204, 409)) == 409:
            call("POST", path, body, (200, 204))

    cluster = {
        "serviceUrl": "http://localhost:8080/",
        "serviceUrlTls": "https://localhost:8443/",
        "brokerServiceUrl": "pulsar://localhost:6650/",
        "brokerServiceUrlTls": "pulsar+ssl://localhost:6651/",
    }
    put(f"clusters/{CLUSTER}", cluster)
    put("tenants/public", {"adminRoles": ["anonymous"], "allowedClusters": [CLUSTER]})
    put("tenants/private", {"adminRoles": [], "allowedClusters": [CLUSTER]})
    grants = [(name, "anonymous") for name in OPEN_NAMESPACES] + [(CLOSED_NAMESPACE, TOKEN_ROLE)]
    for namespace, role in grants:
        actions = ["produce", "consume"]
        policies = {
            "auth_policies": {"namespace_auth": {role: actions}},
            "replication_clusters": [CLUSTER],
        }
        if call("PUT", f"namespaces/{namespace}", policies, (204, 409)) == 409:
            call("POST", f"namespaces/{namespace}/permissions/{role}", actions, (204,))
