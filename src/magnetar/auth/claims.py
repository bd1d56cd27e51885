"""Verifies the signature of a token and reads its claims.

Source: RFC 7519, 4.1 (registered claims); Pulsar's token provider (`sub` is the role; of a list, its first).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TOKEN, Identity, Proof

TOKEN_BYTES_MAX: Final = 16 << 10
"""Bytes. A longer token is refused before it is parsed."""

ROLES_MAX: Final = 100
"""Most roles of one token; each check of a right tries all of them."""

Key = OctKey | RSAKey | ECKey
Claims = Mapping[str, Any]

HMAC: Final = ("HS256", "HS384", "HS512")
RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


def algorithms_of(key: Key) -> tuple[str, ...]:
    """The algorithms allowed with a key; the token's header cannot add others."""
    if isinstance(key, OctKey):
        return HMAC
    return RSA if isinstance(key, RSAKey) else CURVES[key.curve_name]


def verified(token: bytes, key: Key, algorithms: Sequence[str], *, now_s: int, leeway_s: int) -> Claims:
    """The claims of a token that `key` signed and that is valid now. Raises AuthenticationError.

    `leeway_s`: seconds by which the clocks of issuer and broker may differ.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise AuthenticationError("the token is longer than any legal one")
    try:
        claims = jwt.decode(token, key, algorithms=list(algorithms)).claims
        jwt.JWTClaimsRegistry(now=now_s, leeway=leeway_s).validate(claims)
    # Nested too deep for the parser is RecursionError.
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise AuthenticationError(f"the token is not valid: {_cause(error)}") from error
    return claims


def identity(
    claims: Claims, *, role_claim: str, leeway_s: int, proof: str, several: bool = False
) -> Identity:
    """The identity in the claims, with its expiry and `proof`. Raises AuthenticationError.

    When the claim is a list, its first item is the role; with `several`, the other items are roles too.
    """
    found = claims.get(role_claim)
    listed: list[object] = found if isinstance(found, list) and found else [found]
    role, *others = listed
    if not isinstance(role, str) or not role:
        raise AuthenticationError(f"the token has no text in its claim {role_claim!r}")
    also: tuple[str, ...] = ()
    if several and others:
        if len(others) >= ROLES_MAX or not all(isinstance(each, str) and each for each in others):
            raise AuthenticationError(f"the token's claim {role_claim!r} is not a list of roles")
        also = tuple(dict.fromkeys(each for each in others if isinstance(each, str) and each != role))
    proofs = (Proof(METHOD_TOKEN, proof),)
    end_s = claims.get("exp")
    if end_s is None:
        return Identity(role, also=also, proofs=proofs)
    try:
        return Identity(role, int((end_s + leeway_s) * 1000), also=also, proofs=proofs)
    # Verified to be a number, which may still be too large for one of milliseconds.
    except OverflowError as error:
        raise AuthenticationError("the token's end is not a time") from error


def token_id(claims: Claims, revoked: Set[str]) -> str:
    """The id of the token, "" when it has none. Raises AuthenticationError when it is revoked."""
    found = claims.get("jti", "")
    if not isinstance(found, str):
        raise AuthenticationError("the token's id is not a text")
    if found in revoked:
        raise AuthenticationError("the token is revoked")
    return found


def check_audience(claims: Claims, audiences: Sequence[str]) -> None:
    """Raises AuthenticationError unless the token names one of `audiences`."""
    meant = claims.get("aud")
    listed = meant if isinstance(meant, list) else [meant]
    if not any(isinstance(each, str) and each in audiences for each in listed):
        raise AuthenticationError("the token is for another audience")


def _cause(error: Exception) -> str:
    """The kind of failure, without any of the token's text."""
    code = getattr(error, "error", "")
    return code if isinstance(code, str) and code else "it cannot be read"
