"""Tokens of issuers: whose keys count, when they are fetched, what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.auth.authentication import ProviderChain
from magnetar.auth.claims import TOKEN_BYTES_MAX
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.issuer_keys import RETRY_MS, CacheTimes, parse_key_set
from magnetar.auth.openid import KeyFetch, OpenIdProvider, TokenRules
from support.issuer import AUDIENCE, IssuerKeyRing

NOW_MS = 1_700_000_000_000
TIMES = CacheTimes(refresh_ms=600_000, expiry_ms=1_200_000, miss_ms=60_000)


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> bytes:
    """A token put together by hand, signed by HMAC."""
    parts = [urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims)]
    signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
    return b".".join([*parts, urlsafe_b64encode(signature).rstrip(b"=")])


class Asked:
    """A provider of one issuer, whose errands are run at once."""

    def __init__(self, *rings: IssuerKeyRing, **rules: Any) -> None:
        self.now_ms = NOW_MS
        self.rings = {ring.url: ring for ring in rings}
        asked = TokenRules(audiences=[AUDIENCE], **rules)
        self.provider = OpenIdProvider(list(self.rings), asked, fetch=self.fetch, times=TIMES)

    def fetch(self, url: str) -> bytes:
        (ring,) = (ring for ring in self.rings.values() if url.startswith(ring.url + "/"))
        return ring.fetch(url)

    def identify(self, token: bytes) -> Identity:
        """Its role; counts on one errand at most being enough."""
        answer = self.provider.identify(Credentials("token", token), self.now_ms)
        if isinstance(answer, KeyFetch):
            answer.run()
            answer = self.provider.identify(Credentials("token", token), self.now_ms)
        assert isinstance(answer, Identity)
        return answer

    def refuses(self, token: bytes, said: str) -> None:
        with pytest.raises(AuthenticationError, match=said) as caught:
            self.identify(token)
        assert len(token) < 2 or token.decode() not in str(caught.value)


@pytest.mark.parametrize("kind", ["EC", "RSA"])
def test_tokens_of_an_issuer(kind: str) -> None:
    ring = IssuerKeyRing()
    ring.rotate(kind=kind)
    asked = Asked(ring)
    assert asked.identify(ring.token(exp=1_700_000_100)) == Identity("me", 1_700_000_100_000)
    assert asked.identify(ring.token(aud=["them", AUDIENCE])).role == "me"
    assert ring.requests == ["/.well-known/openid-configuration", "/keys"]


def test_the_claim_of_the_role_may_be_a_list() -> None:
    ring = IssuerKeyRing()
    asked = Asked(ring, role_claim="roles", leeway_s=30)
    assert asked.identify(ring.token(roles=["a", "b"], exp=1_699_999_990)).role == "a"
    for roles in ([], [7], None, "", {"a": 1}):
        asked.refuses(ring.token(roles=roles), "no text in its claim 'roles'")


def test_each_issuer_vouches_for_itself_only() -> None:
    ours, theirs, stranger = (IssuerKeyRing(f"https://{name}.test") for name in ("a", "b", "c"))
    asked = Asked(ours, theirs)
    assert asked.identify(ours.token()).role == "me"
    assert asked.identify(theirs.token()).role == "me"
    asked.refuses(stranger.token(), "not among those that are accepted")
    asked.refuses(theirs.token(iss=ours.url), "not among those that its issuer publishes")
    header = {"kid": ours.keys[0].kid}
    asked.refuses(theirs.token(iss=ours.url, header=header), "the token is not valid: bad_signature")
    assert stranger.requests == []


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": 1_699_999_999}, "expired_token"),
        ({"exp": None}, "never ends"),
        ({"exp": "soon"}, "not valid"),
        ({"exp": 1e308}, "not a time"),
        ({"nbf": 1_700_000_001}, "not valid"),
        ({"aud": None}, "for another audience"),
        ({"aud": "them"}, "for another audience"),
        ({"aud": ["them", 7]}, "not valid"),
        ({"sub": None}, "no text in its claim 'sub'"),
        ({"iss": None}, "names no issuer"),
        ({"iss": ["https://issuer.test"]}, "names no issuer"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], said: str) -> None:
    ring = IssuerKeyRing()
    Asked(ring).refuses(ring.token(**claims), said)


def test_algorithms_are_the_keys_own() -> None:
    ring = IssuerKeyRing()
    ring.rotate(kind="RSA")
    asked = Asked(ring)
    claims = {"iss": ring.url, "sub": "me", "aud": AUDIENCE, "exp": 2_000_000_000}
    key_id = ring.keys[0].kid
    public = ring.keys[0].as_pem(private=False)
    for secret in (public, public.strip(), b""):
        asked.refuses(forged({"alg": "HS256", "kid": key_id}, claims, secret), "not valid")
    unsigned = forged({"alg": "none", "kid": key_id}, claims, b"").rpartition(b".")[0] + b"."
    asked.refuses(unsigned, "not valid")
    other = ECKey.generate_key("P-256")
    asked.refuses(jwt.encode({"alg": "ES256", "kid": key_id}, claims, other).encode(), "not valid")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"a.b",
        b"a.b.c",
        b"e30.e30.e30",
        b"W10.W10.W10",
        b"MQ.MQ.",
        b"\xff\xfe.x.y",
        b"." * 20,
        b"W" * 4_000 + b".e30.e30",
        b"W1tb" * 2_500 + b".e30.e30",
        b"x" * (TOKEN_BYTES_MAX + 1),
    ],
)
def test_what_is_no_token(token: bytes) -> None:
    ring = IssuerKeyRing()
    with pytest.raises(AuthenticationError):
        Asked(ring).identify(token)
    assert ring.requests == []


# -- fetching keys -----------------------------------------------------------------------------------


def test_a_new_key_is_fetched_and_the_old_one_forgotten() -> None:
    ring = IssuerKeyRing()
    asked = Asked(ring)
    old = ring.token()
    asked.identify(old)
    ring.rotate()
    asked.refuses(ring.token(), "not among those that its issuer publishes")
    asked.now_ms += TIMES.miss_ms
    assert asked.identify(ring.token()).role == "me"
    asked.refuses(old, "not among those that its issuer publishes")
    assert len(ring.requests) == 4


HOUR_MS = 3_600_000


def test_an_issuer_is_asked_after_the_clock_was_set_back() -> None:
    """A key that it has made since is found at once, and not when the clock is past where it was."""
    ring = IssuerKeyRing()
    asked = Asked(ring)
    asked.now_ms += HOUR_MS
    asked.identify(ring.token())
    asked.now_ms -= HOUR_MS
    ring.rotate()
    assert asked.identify(ring.token()).role == "me"


def test_an_issuer_that_did_not_answer_is_asked_after_the_clock_was_set_back() -> None:
    ring = IssuerKeyRing()
    asked = Asked(ring)
    asked.now_ms += HOUR_MS
    ring.down = True
    asked.refuses(ring.token(), "not among those that its issuer publishes")
    ring.down = False
    asked.now_ms -= HOUR_MS
    assert asked.identify(ring.token()).role == "me"


def test_strangers_cannot_make_us_ask_again_and_again() -> None:
    ring = IssuerKeyRing()
    asked = Asked(ring)
    asked.identify(ring.token())
    for i in range(100):
        asked.refuses(ring.token(header={"kid": f"made-up-{i}"}), "not among those that its issuer")
    assert len(ring.requests) == 2


def test_keys_are_refreshed_and_outlive_a_failure_until_their_end() -> None:
    ring = IssuerKeyRing()
    asked = Asked(ring)
    token = ring.token()
    asked.identify(token)
    asked.now_ms += TIMES.refresh_ms
    asked.identify(token)
    assert len(ring.requests) == 4
    ring.down = True
    asked.now_ms += TIMES.refresh_ms
    assert asked.identify(token).role == "me"
    assert len(ring.requests) == 5
    assert asked.identify(token).role == "me"
    assert len(ring.requests) == 5, "not asked again at once"
    asked.now_ms += TIMES.expiry_ms - TIMES.refresh_ms
    asked.refuses(token, "not among those that its issuer publishes")
    ring.down = False
    asked.now_ms += RETRY_MS
    assert asked.identify(token).role == "me"


@pytest.mark.parametrize(
    "discovery",
    [
        b"",
        b"[]",
        b"{}",
        b'{"issuer": "https://issuer.test"}',
        b'{"issuer": "https://other.test", "jwks_uri": "https://issuer.test/keys"}',
        b'{"issuer": "https://issuer.test", "jwks_uri": "http://issuer.test/keys"}',
        b'{"issuer": "https://issuer.test", "jwks_uri": "file:///etc/passwd"}',
        b'{"issuer": "https://issuer.test", "jwks_uri": 7}',
        b"[" * 100_000,
    ],
)
def test_discovery_documents_that_are_refused(discovery: bytes) -> None:
    ring = IssuerKeyRing()

    def fetch(url: str) -> bytes:
        # The keys are right: the document alone must keep them from being taken.
        return discovery if "openid-configuration" in url else ring.fetch(f"{ring.url}/keys")

    provider = OpenIdProvider([ring.url], TokenRules(audiences=[AUDIENCE]), fetch=fetch)
    errand = provider.identify(Credentials("token", ring.token()), NOW_MS)
    assert isinstance(errand, KeyFetch)
    errand.run()
    with pytest.raises(AuthenticationError, match="not among those that its issuer publishes"):
        provider.identify(Credentials("token", ring.token()), NOW_MS)


def test_which_keys_of_a_set_are_taken() -> None:
    ec = ECKey.generate_key("P-256", {"kid": "ec"}).as_dict(private=False)
    rsa = RSAKey.generate_key(2048, {"kid": "rsa"}).as_dict(private=False)
    secret = OctKey.generate_key(256, {"kid": "oct"}).as_dict(private=True)
    taken = [
        ec,
        {**rsa, "alg": "RS512"},
        secret,
        {**ec, "kid": "enc", "use": "enc"},
        {**ec, "kid": None},
        {**ec, "kid": "curve", "crv": "secp256k1"},
        {**ec, "kid": "point", "x": "AA"},
        {**rsa, "kid": "confused", "alg": "HS256"},
        {**rsa, "kid": "weak", "n": "x" * 100},
        {"kid": "strange", "kty": "x"},
        7,
    ]
    found = parse_key_set(json.dumps({"keys": taken}).encode())
    assert {name: key.algorithms for name, key in found.items()} == {"ec": ("ES256",), "rsa": ("RS512",)}
    for document in (b"", b"7", b"{}", b'{"keys": 7}', b"[" * 100_000):
        with pytest.raises(ValueError, match="not a JWK set"):
            parse_key_set(document)


@pytest.mark.parametrize(
    ("issuer", "require_https", "good"),
    [
        ("https://issuer.test", True, True),
        ("http://issuer.test", True, False),
        ("http://issuer.test", False, False),
        ("http://127.0.0.1:8000", True, False),
        ("http://127.0.0.1:8000", False, True),
        ("http://localhost/x", False, True),
        ("http://localhost.evil.test", False, False),
        ("ftp://issuer.test", False, False),
        ("https://", True, False),
        ("issuer", True, False),
    ],
)
def test_issuers_are_asked_over_https(issuer: str, require_https: bool, good: bool) -> None:
    def make() -> OpenIdProvider:
        rules = TokenRules(audiences=["a"])
        return OpenIdProvider([issuer], rules, fetch=lambda url: b"", require_https=require_https)

    if good:
        make()
    else:
        with pytest.raises(ValueError, match="must begin with https://"):
            make()


@pytest.mark.parametrize(("issuers", "audiences"), [([], ["a"]), (["https://issuer.test"], [])])
def test_issuers_and_audiences_are_needed(issuers: list[str], audiences: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        OpenIdProvider(issuers, TokenRules(audiences=audiences), fetch=lambda url: b"")


class Believing:
    """Takes one credential."""

    slow = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        if credentials.data != self._data:
            raise AuthenticationError(f"not {self._data.decode()}")
        return Identity(self._data.decode())


def test_the_first_of_a_chain_that_accepts_says_who_it_is() -> None:
    ring = IssuerKeyRing()
    chain = ProviderChain([Believing(b"a"), Asked(ring).provider, Believing(b"b")])
    assert not chain.slow
    for name in ("a", "b"):
        assert chain.identify(Credentials("token", name.encode()), NOW_MS) == Identity(name)
    with pytest.raises(AuthenticationError, match="not a; it is not a signed token; not b"):
        chain.identify(Credentials("token", b"c"), NOW_MS)
    errand = chain.identify(Credentials("token", ring.token()), NOW_MS)
    assert isinstance(errand, KeyFetch)
    errand.run()
    assert chain.identify(Credentials("token", ring.token()), NOW_MS) == Identity("me", 2_000_000_000_000)
