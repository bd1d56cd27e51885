"""Keys of an issuer over real HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.auth.authentication import Errand
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.https_fetch import HttpsFetch
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.openid import OpenIdProvider, TokenRules
from support.certificates import Authority
from support.issuer import AUDIENCE, LocalIssuer

pytestmark = pytest.mark.one_process("own")

NOW_MS = 1_700_000_000_000
RULES = TokenRules(audiences=[AUDIENCE])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def issuer(authority: Authority) -> Iterator[LocalIssuer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("localhost"))
    with LocalIssuer(tls, lifetime_s=lambda: 60) as running:
        yield running


def asked(provider: OpenIdProvider, token: bytes) -> Identity | Errand:
    """The answer after what had to be fetched."""
    errand = provider.identify(Credentials("token", token), NOW_MS)
    assert not isinstance(errand, Identity)
    errand.run()
    return provider.identify(Credentials("token", token), NOW_MS)


def test_keys_come_over_https_from_who_is_trusted(issuer: LocalIssuer, authority: Authority) -> None:
    trusting = OpenIdProvider([issuer.url], RULES, fetch=HttpsFetch(authority.file))
    identity = asked(trusting, issuer.token())
    assert isinstance(identity, Identity)
    assert identity.role == "me"
    careful = OpenIdProvider([issuer.url], RULES, fetch=HttpsFetch())
    before = list(issuer.requests)
    with pytest.raises(AuthenticationError, match="not among those that its issuer publishes"):
        asked(careful, issuer.token())
    assert issuer.requests == before


def test_what_cannot_be_fetched(issuer: LocalIssuer, authority: Authority) -> None:
    fetch = HttpsFetch(authority.file)
    for url in (f"{issuer.url}/none", issuer.url.replace("https", "http"), "https://localhost:1/"):
        with pytest.raises((OSError, ValueError)):
            fetch(url)
    issuer.moved = f"{issuer.url}/keys"
    with pytest.raises(OSError, match="302"):
        fetch(f"{issuer.url}/moved")
    issuer.padding = 2 << 20
    with pytest.raises(ValueError, match="larger than"):
        fetch(f"{issuer.url}/keys")
