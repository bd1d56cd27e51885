"""The public keys of one token issuer, and the rules when to fetch them again. Uses no network and no clock.

    no keys, or keys older than their end                    fetch; wait RETRY_MS after a failure
    keys older than `refresh_ms`                             fetch; after a failure the old keys stay in use
    a token names an unknown key: the issuer may have new    fetch, but not within `miss_ms` of the last fetch
    ones

Any client can trigger the last rule, so `miss_ms` also bounds the load on the issuer.

Source: OpenID Connect Core, 10.1.1 (rotation of signing keys); Pulsar's JWKS cache, its settings and their
defaults.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from magnetar.auth.claims import CURVES, algorithms_of

RETRY_MS: Final = 10_000
"""Milliseconds between two attempts while an issuer does not answer."""
_SLEWED_MS: Final = 1_000
"""Most milliseconds by which the usual adjustment of a clock sets it back."""
_RSA_BITS_MIN: Final = 2048
"""Fewest bits of an RSA key. Source: RFC 7518, 3.3."""
_KEYS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class CacheTimes:
    """Ages of fetched keys, in ms."""

    refresh_ms: int = 18 * 3_600_000
    expiry_ms: int = 24 * 3_600_000
    miss_ms: int = 300_000
    """Milliseconds between two fetches because of unknown keys, at least 1,000. Default 300,000."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key of an issuer with its allowed algorithms."""

    key: RSAKey | ECKey
    algorithms: tuple[str, ...]


class IssuerKeys:
    """The fetched keys of one issuer."""

    __slots__ = ("_failed_ms", "_fetched_ms", "_keys", "_times")

    def __init__(self, times: CacheTimes) -> None:
        self._times = times
        self._keys: dict[str, SigningKey] = {}
        self._fetched_ms: int | None = None
        self._failed_ms: int | None = None

    def find(self, key_id: str, now_ms: int) -> SigningKey | None:
        """The key; None when it is unknown or the fetched keys have expired."""
        if not _is_within(self._fetched_ms, now_ms, self._times.expiry_ms):
            return None
        return self._keys.get(key_id)

    def publishes(self, key_id: str) -> bool:
        """Whether the key was in the issuer's last answer, however old that is."""
        return self._fetched_ms is None or key_id in self._keys

    def must_fetch(self, key_id: str, now_ms: int) -> bool:
        """Whether the keys must be fetched before `find` is called for this key."""
        if _is_within(self._failed_ms, now_ms, RETRY_MS):
            return False
        if not _is_within(self._fetched_ms, now_ms, min(self._times.refresh_ms, self._times.expiry_ms)):
            return True
        return key_id not in self._keys and not _is_within(self._fetched_ms, now_ms, self._times.miss_ms)

    def learn(self, keys: Mapping[str, SigningKey], now_ms: int) -> None:
        """Replaces the issuer's keys after a fetch."""
        self._keys = dict(keys)
        self._fetched_ms, self._failed_ms = now_ms, None

    def failed(self, now_ms: int) -> None:
        """Notes a failed fetch."""
        self._failed_ms = now_ms


def _is_within(since_ms: int | None, now_ms: int, length_ms: int) -> bool:
    """Whether less than `length_ms` have passed. False when the clock was set back to before the start: the
    elapsed time is unknown then, and an issuer would not be asked for hours."""
    return since_ms is not None and -_SLEWED_MS <= now_ms - since_ms < length_ms


def parse_key_set(document: bytes) -> dict[str, SigningKey]:
    """The signing keys in a JWK set, by id. Raises ValueError.

    Ignores keys without an id, secret keys (once published they prove nothing), keys for encryption, weak
    keys and unknown kinds. Source: RFC 7517.
    """
    try:
        keys = json.loads(document)["keys"]
        found = [entry for entry in keys[:_KEYS_MAX] if isinstance(entry, dict)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError("it is not a JWK set") from error
    result = {}
    for entry in found:
        key_id, key = entry.get("kid"), _signing_key(entry)
        if isinstance(key_id, str) and key is not None:
            result[key_id] = key
    return result


def _signing_key(entry: Mapping[str, object]) -> SigningKey | None:
    if entry.get("use", "sig") != "sig":
        return None
    try:
        key = _imported(entry)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if key is None:
        return None
    algorithms = algorithms_of(key)
    named = entry.get("alg")
    if named is not None:
        algorithms = (named,) if named in algorithms else ()
    return SigningKey(key, algorithms) if algorithms else None


def _imported(entry: Mapping[str, object]) -> RSAKey | ECKey | None:
    if entry.get("kty") == "RSA":
        # Before the import: the library only warns of weak keys.
        modulus = urlsafe_b64decode(str(entry["n"]) + "==")
        if int.from_bytes(modulus, "big").bit_length() < _RSA_BITS_MIN:
            return None
        return RSAKey.import_key({name: str(entry[name]) for name in ("kty", "n", "e")})
    if entry.get("kty") == "EC" and entry.get("crv") in CURVES:
        return ECKey.import_key({name: str(entry[name]) for name in ("kty", "crv", "x", "y")})
    return None
