"""Verifies JSON web tokens with one configured key.

The key determines the accepted algorithms; a token whose header names another one, or holds a key, is
refused.

Source: RFC 7519 (claims), RFC 8725 (best current practices); Pulsar's token provider.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.auth import claims
from magnetar.auth.claims import Key
from magnetar.auth.identity import Credentials, Identity

SECRET_BYTES_MIN: Final = 32
"""Fewest bytes of a secret; a secret shorter than its hash can be guessed (RFC 7518, 3.2)."""


def secret_key(secret: bytes) -> Key:
    """The key for a secret that signs and verifies. Raises ValueError when it is too short."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"a token secret has at least {SECRET_BYTES_MIN} bytes, not {len(secret)}")
    return OctKey.import_key(secret)


def public_key(data: bytes) -> Key:
    """An RSA or EC public key, PEM or DER. Raises ValueError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    load = serialization.load_pem_public_key if b"-----BEGIN" in data else serialization.load_der_public_key
    try:
        loaded = load(data)
    except Exception as error:  # the library does not document its errors for invalid input
        raise ValueError("it is not a public key in PEM or DER") from error
    if not isinstance(loaded, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey)):
        raise ValueError("it is neither an RSA nor an EC key")
    pem = loaded.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return RSAKey.import_key(pem) if isinstance(loaded, rsa.RSAPublicKey) else ECKey.import_key(pem)


def new_token(secret: bytes, role: str, *, now_s: int, lasts_s: int | None, token_id: str = "") -> str:
    """A token for a role, signed by HMAC. `lasts_s`: seconds of validity; None: no end. `token_id`: the id by
    which it can be revoked. Raises ValueError when the secret is too short or the role is empty."""
    if not role:
        raise ValueError("a token names a role")
    content: dict[str, str | int] = {"sub": role}
    if token_id:
        content["jti"] = token_id
    if lasts_s is not None:
        content["exp"] = now_s + lasts_s
    return jwt.encode({"alg": "HS256"}, content, secret_key(secret))


class TokenProvider:
    """Verifies tokens with one key."""

    slow = False

    def __init__(
        self,
        key: Key,
        *,
        role_claim: str = "sub",
        audience: str = "",
        leeway_s: int = 60,
        revoked: Set[str] = frozenset(),
        several: bool = False,
    ) -> None:
        """`audience`: the audience that `aud` must hold; "": any. `leeway_s`: seconds by which the clocks of
        issuer and broker may differ. `revoked`: ids of revoked tokens. `several`: whether all items of a list
        of roles count."""
        self._several = several
        self._key = key
        # A hash, so that no proof holds a part of the key.
        self._name = f"key:{key.thumbprint()}"
        self.revoked = revoked
        """Ids of tokens that count no more."""
        self._algorithms = claims.algorithms_of(key)
        self._role_claim = role_claim
        self._audience = audience
        self._leeway_s = leeway_s

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """The role in a token, valid until the token expires. Raises AuthenticationError."""
        found = claims.verified(
            credentials.data, self._key, self._algorithms, now_s=now_ms // 1000, leeway_s=self._leeway_s
        )
        if self._audience:
            claims.check_audience(found, (self._audience,))
        proof = f"{self._name} {claims.token_id(found, self.revoked)}"
        return claims.identity(
            found,
            role_claim=self._role_claim,
            leeway_s=self._leeway_s,
            proof=proof,
            several=self._several,
        )

    def counts(self, proof: str) -> bool:
        """Whether the key is the same and the token is not revoked."""
        name, _, token_id = proof.partition(" ")
        return name == self._name and (not token_id or token_id not in self.revoked)
