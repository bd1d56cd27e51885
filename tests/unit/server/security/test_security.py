"""What starts, what does not, and what is said of it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from magnetar.auth.authentication import ProviderChain
from magnetar.auth.parts import authentication
from magnetar.base.errors import StartupError
from magnetar.server.security import security
from magnetar.server.security.exposure import check_exposure
from magnetar.server.settings.config import StandaloneConfig, names
from magnetar.server.settings.loading import load
from support.certificates import Authority


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_is_open(host: str) -> None:
    check_exposure(StandaloneConfig(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_others_are_let_in_by_intent_only(host: str) -> None:
    with pytest.raises(StartupError, match=r"every client could do everything.*or give --insecure"):
        check_exposure(StandaloneConfig(host=host))
    check_exposure(StandaloneConfig(host=host, insecure=True))
    check_exposure(StandaloneConfig(host=host, authentication="token"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tls_key": Path("k")}, "TLS needs both tls_certificate and tls_key"),
        ({"tls_require_client_certificate": True}, "needs TLS and tls_ca"),
        ({"authentication": "magic"}, "some of tls, token, basic, openid"),
        ({"authentication": "tls"}, "authentication by tls needs tls_ca"),
        (
            {"tls_key": Path("k"), "tls_certificate": Path("c"), "https_port": 6650},
            "broker_port and https_port are both 6650",
        ),
        ({"https_port": 70000}, "https_port is 70000"),
    ],
)
def test_settings_that_do_not_fit_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        load(settings, environment={})


def test_tls_ports_count_with_tls_only() -> None:
    load({"broker_port": 6651}, environment={})


def test_tls_contexts(tmp_path: Path) -> None:
    assert security.tls_context(StandaloneConfig()) is None
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    files: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key}
    context = security.tls_context(StandaloneConfig(**files))
    assert context is not None
    assert context.verify_mode == ssl.CERT_NONE
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    files["tls_ca"] = authority.file
    asked = security.tls_context(StandaloneConfig(**files))
    required = security.tls_context(StandaloneConfig(**files, tls_require_client_certificate=True))
    assert asked is not None
    assert required is not None
    assert (asked.verify_mode, required.verify_mode) == (ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED)
    with pytest.raises(StartupError, match="check tls_certificate and tls_key"):
        security.tls_context(StandaloneConfig(**{**files, "tls_key": tmp_path / "missing"}))
    with pytest.raises(StartupError, match="check tls_certificate and tls_key"):
        security.tls_context(StandaloneConfig(**{**files, "tls_key": authority.file}))
    with pytest.raises(StartupError, match="check tls_ca"):
        security.tls_context(StandaloneConfig(**{**files, "tls_ca": key}))


def test_authentication(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"x" * 32)
    config = StandaloneConfig(authentication="token, tls", token_secret_key=key, anonymous_role="guest")
    made = authentication(security.auth_settings(config))
    assert (list(made.providers), made.anonymous_role) == (["token", "tls"], "guest")


def test_who_speaks_for_whom_and_how_long(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"x" * 32)
    config = load(
        {
            "authentication": "token,openid",
            "authentication_refresh_check_seconds": 5,
            "token_secret_key": key,
            "openid_issuers": "https://a.test, http://localhost:1",
            "openid_require_issuers_use_https": False,
            "openid_audiences": "us",
            "proxy_roles": "p, q",
            "authenticate_original_auth_data": False,
        },
        environment={},
    ).config
    made = authentication(security.auth_settings(config))
    assert made.proxy_roles == {"p", "q"}
    assert (made.verify_original, made.renewal_check_s) == (False, 5)
    (chain,) = made.providers.values()
    assert isinstance(chain, ProviderChain)
    assert [type(provider).__name__ for provider in chain.providers] == ["TokenProvider", "OpenIdProvider"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "at least one issuer and one audience"),
        ({"openid_issuers": "http://a.test", "openid_audiences": "us"}, "must begin with https://"),
        ({"openid_trust_certificates": Path("missing")}, "certificates in missing cannot be used"),
    ],
)
def test_issuers_that_cannot_be_asked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        authentication(security.auth_settings(StandaloneConfig(authentication="openid", **settings)))


def test_lists() -> None:
    assert names(" a, b,,c ") == ("a", "b", "c")
    assert names("") == ()
