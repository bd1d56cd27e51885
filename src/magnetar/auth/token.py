"""JSON web tokens as credentials.

The key says which algorithms count; what the token's header asks for beyond that is refused, and so are
keys that a header brings along.

Source: RFC 7519 (claims), RFC 8725 (best current practices); Pulsar's token provider (`sub` is the role).
"""

from __future__ import annotations

from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity

_HMAC: Final = ("HS256", "HS384", "HS512")
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_LEEWAY_S: Final = 60
"""How far the clocks of issuer and broker may differ."""
_TOKEN_BYTES_MAX: Final = 16 << 10
SECRET_BYTES_MIN: Final = 32
"""A shorter secret than its hash can be guessed (RFC 7518, 3.2)."""

Key = OctKey | RSAKey | ECKey


def secret_key(secret: bytes) -> Key:
    """A secret that signs and verifies. Raises ValueError when it is too short."""
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
    except Exception as error:  # the library does not say what it raises for odd input
        raise ValueError("it is no public key in PEM or DER") from error
    if not isinstance(loaded, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey)):
        raise ValueError("it is neither an RSA nor an EC key")
    pem = loaded.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return RSAKey.import_key(pem) if isinstance(loaded, rsa.RSAPublicKey) else ECKey.import_key(pem)


class TokenProvider:
    """Verifies tokens with one key."""

    slow = False

    def __init__(self, key: Key, *, role_claim: str = "sub", audience: str = "") -> None:
        """`audience`: what the token's `aud` must hold; "": it is not looked at."""
        self._key = key
        self._role_claim = role_claim
        self._audience = audience
        if isinstance(key, OctKey):
            self._algorithms: tuple[str, ...] = _HMAC
        elif isinstance(key, RSAKey):
            self._algorithms = _RSA
        else:
            self._algorithms = _CURVES[key.curve_name]

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """The role that a token names, until the token expires. Raises AuthenticationError."""
        if len(credentials.data) > _TOKEN_BYTES_MAX:
            raise AuthenticationError("the token is longer than any legal one")
        try:
            token = jwt.decode(credentials.data, self._key, algorithms=list(self._algorithms))
            self._registry(now_ms // 1000).validate(token.claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise AuthenticationError(f"the token is not valid: {_cause(error)}") from error
        role = token.claims.get(self._role_claim)
        if not isinstance(role, str) or not role:
            raise AuthenticationError(f"the token has no text in its claim {self._role_claim!r}")
        # Validated above: a number.
        expires = token.claims.get("exp")
        return Identity(role, None if expires is None else int((expires + _LEEWAY_S) * 1000))

    def _registry(self, now_s: int) -> jwt.JWTClaimsRegistry:
        wanted: dict[str, Any] = {}
        if self._audience:
            wanted["aud"] = {"essential": True, "value": self._audience}
        return jwt.JWTClaimsRegistry(now=now_s, leeway=_LEEWAY_S, **wanted)


def _cause(error: Exception) -> str:
    """The kind of failure, without any of the token's text."""
    code = getattr(error, "error", "")
    return code if isinstance(code, str) and code else "it cannot be read"
