"""Tokens of OpenID Connect issuers, verified with the keys that each issuer publishes.

Keys are fetched only from listed issuers. Before the signature of a token is verified, only its issuer and
the id of its key are read.

Source: OpenID Connect Discovery 1.0; RFC 7517 (JWK sets); Pulsar's OpenID provider and its settings.
"""

from __future__ import annotations

import binascii
import ipaddress
import json
import logging
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from magnetar.auth import claims
from magnetar.auth.authentication import Errand
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.issuer_keys import CacheTimes, IssuerKeys, SigningKey, parse_key_set

_log = logging.getLogger("magnetar.auth")

_DISCOVERY: Final = "/.well-known/openid-configuration"

Fetch = Callable[[str], bytes]
"""The body at a URL. Blocks for seconds at most. Raises OSError or ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say, and how the role is read from it."""

    audiences: Sequence[str]
    """One of them must stand in `aud`."""
    role_claim: str = "sub"
    """The claim that names the role."""
    leeway_s: int = 0
    """Seconds by which the issuer's clock may differ."""
    several: bool = False
    """Whether all roles of a claim that is a list count."""


class OpenIdProvider:
    """Verifies tokens of several issuers."""

    slow = False

    def __init__(
        self,
        issuers: Sequence[str],
        rules: TokenRules,
        *,
        fetch: Fetch,
        require_https: bool = True,
        times: CacheTimes | None = None,
        revoked: Set[str] = frozenset(),
    ) -> None:
        """`issuers`: URLs, as tokens name them in `iss`.

        `require_https`: False allows plain HTTP to this machine. `revoked`: ids of revoked tokens. Raises
        ValueError for an invalid issuer or audience.
        """
        if not issuers or not rules.audiences:
            raise ValueError("at least one issuer and one audience are needed")
        for issuer in issuers:
            check_url(issuer, require_https=require_https)
        self._rules = rules
        self.revoked = revoked
        """Ids of tokens that count no more."""
        self._keys = {issuer: IssuerKeys(times or CacheTimes()) for issuer in issuers}
        self._fetch = fetch
        self._require_https = require_https

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """The role in a token, valid until the token expires, or the errand that fetches its issuer's keys.

        Raises AuthenticationError.
        """
        token = credentials.data
        issuer, key_id = _unverified(token)
        keys = self._keys.get(issuer)
        if keys is None:
            raise AuthenticationError("the token's issuer is not among those that are accepted")
        if keys.must_fetch(key_id, now_ms):
            return KeyFetch(issuer, keys, self._fetch, now_ms, require_https=self._require_https)
        key = keys.find(key_id, now_ms)
        if key is None:
            raise AuthenticationError("the token's key is not among those that its issuer publishes")
        rules = self._rules
        leeway_s = rules.leeway_s
        found = claims.verified(token, key.key, key.algorithms, now_s=now_ms // 1000, leeway_s=leeway_s)
        if found.get("iss") != issuer:
            raise AuthenticationError("the token names two issuers")
        if "exp" not in found:
            raise AuthenticationError("the token never ends")
        claims.check_audience(found, rules.audiences)
        # A key's id ends where its length says, whatever an issuer puts into it.
        proof = f"issuer:{issuer} {len(key_id)} {key_id} {claims.token_id(found, self.revoked)}"
        return claims.identity(
            found, role_claim=rules.role_claim, leeway_s=leeway_s, proof=proof, several=rules.several
        )

    def counts(self, proof: str) -> bool:
        """Whether the issuer is still listed and still publishes the key, and the token is not revoked.

        While an issuer does not answer, its last keys count.
        """
        kind, _, rest = proof.partition(" ")
        size, _, rest = rest.partition(" ")
        keys = self._keys.get(kind.removeprefix("issuer:")) if kind.startswith("issuer:") else None
        if keys is None:
            return False
        token_id = rest[int(size) + 1 :]
        return keys.publishes(rest[: int(size)]) and (not token_id or token_id not in self.revoked)

    def keep_keys_of(self, earlier: OpenIdProvider) -> None:
        """Takes over the keys that an earlier provider has fetched from the same issuers."""
        self._keys |= {issuer: keys for issuer, keys in earlier._keys.items() if issuer in self._keys}


@dataclass(frozen=True, slots=True)
class KeyFetch:
    """Fetches the keys of one issuer."""

    issuer: str
    keys: IssuerKeys
    fetch: Fetch
    now_ms: int
    require_https: bool

    @property
    def target(self) -> str:
        """The issuer: one request answers all waiting logins."""
        return self.issuer

    def run(self) -> None:
        """Fetches the keys; logs a failure, after which a later login tries again."""
        try:
            found = self._fetched()
        # An issuer or a proxy may answer anything; no answer may stop the broker.
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("keys of the issuer %s cannot be fetched: %s", self.issuer, error)
            self.keys.failed(self.now_ms)
            return
        self.keys.learn(found, self.now_ms)

    def _fetched(self) -> dict[str, SigningKey]:
        document = json.loads(self.fetch(self.issuer.rstrip("/") + _DISCOVERY))
        if document["issuer"] != self.issuer:
            raise ValueError("its discovery document belongs to another issuer")
        where = document["jwks_uri"]
        if not isinstance(where, str):
            raise ValueError("its discovery document does not name the address of its keys")
        check_url(where, require_https=self.require_https)
        return parse_key_set(self.fetch(where))


def check_url(url: str, *, require_https: bool) -> None:
    """Raises ValueError for a URL that keys must not be fetched from."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and not require_https and _is_loopback(parts.hostname or ""):
        return
    raise ValueError(f"{url!r} must begin with https://; http:// is for issuers on this machine, if allowed")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unverified(token: bytes) -> tuple[str, str]:
    """Issuer and key id that a token claims. Raises AuthenticationError."""
    if len(token) > claims.TOKEN_BYTES_MAX:
        raise AuthenticationError("the token is longer than any legal one")
    parts = token.split(b".")
    if len(parts) != 3:
        raise AuthenticationError("it is not a signed token")
    header, body = _object(parts[0]), _object(parts[1])
    issuer, key_id = body.get("iss"), header.get("kid")
    if not isinstance(issuer, str) or not isinstance(key_id, str):
        raise AuthenticationError("the token names no issuer or no key")
    return issuer, key_id


def _object(part: bytes) -> dict[str, object]:
    try:
        found = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise AuthenticationError("the token cannot be read") from error
    if not isinstance(found, dict):
        raise AuthenticationError("the token cannot be read")
    return found
