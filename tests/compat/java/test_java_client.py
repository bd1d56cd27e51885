"""The official Java client, unmodified, against a real standalone.

All scenarios of a driver run in one Java process (`driver/`), several at once; each is a test here. What is
needed: a JDK of version 17 or newer, Maven, and once a registry that Maven can fetch the client from.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from passlib.hash import apr_md5_crypt

from support import java_client
from support.certificates import Authority
from support.serving import serving
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECRET = b"0123456789abcdef0123456789abcdef"
SECURED = "SecuredDriver.java"
PLAIN = sorted(path.name for path in (java_client.HERE / "driver").glob("*.java") if path.name != SECURED)
SCENARIOS = java_client.scenarios_of(*PLAIN)


def outcomes(folder: Path, main: str, *arguments: str) -> dict[str, str]:
    try:
        return java_client.run_driver(folder, main, *arguments)
    except java_client.NotHereError as reason:
        pytest.skip(f"no Java client: {reason}")


@pytest.fixture(scope="module")
def plain(standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("classes")
    return outcomes(folder, "Driver", standalone.broker_url, standalone.http_url)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(plain: dict[str, str], scenario: str) -> None:
    reason = plain.get(scenario, "it did not end")
    assert not reason, reason


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    certificate, key = authority.issue("localhost")
    (folder / "secret").write_bytes(SECRET)
    (folder / "users").write_text(f"root:{apr_md5_crypt.hash('secret')}\n")
    environment = {
        "MAGNETAR_HOST": "localhost",
        "MAGNETAR_TLS_CERTIFICATE": str(certificate),
        "MAGNETAR_TLS_KEY": str(key),
        "MAGNETAR_TLS_CA": str(authority.file),
        "MAGNETAR_BROKER_TLS_PORT": "0",
        "MAGNETAR_HTTPS_PORT": "0",
        "MAGNETAR_AUTHENTICATION": "tls,token,basic",
        "MAGNETAR_SUPERUSER_ROLES": "root",
        "MAGNETAR_TOKEN_SECRET_KEY": str(folder / "secret"),
        "MAGNETAR_BASIC_USERS": str(folder / "users"),
    }
    token = jwt.encode({"alg": "HS256"}, {"sub": "root"}, OctKey.import_key(SECRET))
    root = [str(file) for file in authority.issue("root")]
    with serving(folder / "process", ephemeral=True, environment=environment) as process:
        ready = json.loads((process.folder / "ready.json").read_text())
        urls = ready["broker_tls_url"], ready["https_url"]
        return outcomes(folder, "SecuredDriver", *urls, str(authority.file), token, *root)


@pytest.mark.parametrize("scenario", java_client.scenarios_of(SECURED))
def test_secured(secured: dict[str, str], scenario: str) -> None:
    reason = secured.get(scenario, "it did not end")
    assert not reason, reason
