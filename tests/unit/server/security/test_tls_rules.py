"""Versions and suites of TLS, as settings name them."""

from __future__ import annotations

import ssl

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.security import tls_rules
from magnetar.server.security.tls_rules import openssl_name

NEWER = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
ONE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        (ONE, "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    # OpenSSL knows it.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


@pytest.mark.parametrize(
    ("protocols", "ciphers", "versions"),
    [
        ((), (), ("TLSv1_2", "TLSv1_3")),
        (("TLSv1.3",), (), ("TLSv1_3", "TLSv1_3")),
        (("TLSv1.3", "TLSv1.2"), (), ("TLSv1_2", "TLSv1_3")),
        ((), (ONE,), ("TLSv1_2", "TLSv1_2")),
        ((), NEWER, ("TLSv1_3", "TLSv1_3")),
        ((), (*NEWER, ONE), ("TLSv1_2", "TLSv1_3")),
    ],
)
def test_what_is_served(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], versions: tuple[str, str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_rules.apply(context, protocols, ciphers)
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    if ONE in ciphers:
        served = {suite["name"] for suite in context.get_ciphers() if suite["protocol"] == "TLSv1.2"}
        assert served == {"ECDHE-RSA-AES128-GCM-SHA256"}


@pytest.mark.parametrize(
    ("protocols", "ciphers", "said"),
    [
        (("TLSv1.1",), (), "TLSv1.1 is not served"),
        (("SSLv3", "TLSv1.2"), (), "SSLv3 is not served"),
        ((), ("TLS_RSA_WITH_NOTHING",), "TLS_RSA_WITH_NOTHING is not known"),
        ((), (ONE, "nonsense"), "nonsense is not known"),
        ((), NEWER[:1], "all suites of TLS 1.3 or none"),
        (("TLSv1.3",), (ONE,), "none of these suites"),
    ],
)
def test_what_is_refused(protocols: tuple[str, ...], ciphers: tuple[str, ...], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        tls_rules.apply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), protocols, ciphers)
