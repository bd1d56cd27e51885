"""Whatever a client shows as a token, it is refused with an AuthenticationError, or it is genuine."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from joserfc import jwt
from joserfc.jwk import OctKey

from magnetar.auth.authentication import Provider
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.openid import KeyFetch, OpenIdProvider, TokenRules
from magnetar.auth.token import TokenProvider
from support.issuer import AUDIENCE, IssuerKeyRing

NOW_MS = 1_700_000_000_000
SECRET = OctKey.import_key(b"0123456789abcdef0123456789abcdef")
RING = IssuerKeyRing()


def by_secret() -> tuple[Provider, bytes]:
    genuine = jwt.encode({"alg": "HS256"}, {"sub": "me", "exp": 2_000_000_000}, SECRET)
    return TokenProvider(SECRET), genuine.encode()


def by_issuer() -> tuple[Provider, bytes]:
    provider = OpenIdProvider([RING.url], TokenRules(audiences=[AUDIENCE]), fetch=RING.fetch)
    genuine = RING.token()
    fetch = provider.identify(Credentials("token", genuine), NOW_MS)
    assert isinstance(fetch, KeyFetch)
    fetch.run()
    return provider, genuine


BOTH = pytest.mark.parametrize("made", [by_secret, by_issuer])
Make = Callable[[], tuple[Provider, bytes]]


def role_of(provider: Provider, token: bytes) -> str | None:
    """Role that the token proves; None when it is refused."""
    try:
        answer = provider.identify(Credentials("token", token), NOW_MS)
    except AuthenticationError:
        return None
    assert isinstance(answer, Identity)
    return answer.role


def part(document: Any) -> bytes:
    return urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
headers = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "jku", "x5c", "b64", "zip", "enc"]),
    values | st.sampled_from(["HS256", "none", "None", "ES256", "RS256", "dir", RING.keys[0].kid]),
)
claims = st.dictionaries(
    st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat"]),
    values | st.sampled_from([RING.url, AUDIENCE, "me", 2_000_000_000]),
)


@BOTH
@given(token=st.binary(max_size=200) | st.text("ey.J0-_=", max_size=50).map(str.encode))
@example(token=b"..")
@example(token=b"....")
def test_any_bytes(made: Make, token: bytes) -> None:
    assert role_of(made()[0], token) is None


@BOTH
@given(header=headers | values, body=claims | values, signature=st.binary(max_size=70))
def test_any_documents(made: Make, header: Any, body: Any, signature: bytes) -> None:
    token = b".".join((part(header), part(body), urlsafe_b64encode(signature).rstrip(b"=")))
    assert role_of(made()[0], token) is None


@BOTH
@given(data=st.data())
def test_a_changed_token_proves_nothing_else(made: Make, data: st.DataObject) -> None:
    provider, genuine = made()
    at = data.draw(st.integers(0, len(genuine) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = genuine[:at] + bytes((byte,)) + genuine[at + 1 :]
    # The last letters of a part have bits that mean nothing.
    assert role_of(provider, changed) in (None, "me")
    assert role_of(provider, genuine) == "me"


@given(all_claims=claims)
def test_genuine_tokens_with_any_claims(all_claims: dict[str, Any]) -> None:
    token = jwt.encode({"alg": "HS256"}, all_claims, SECRET).encode()
    role = role_of(TokenProvider(SECRET), token)
    said = all_claims.get("sub")
    first = said[0] if isinstance(said, list) and said else said
    assert role is None or role == first
