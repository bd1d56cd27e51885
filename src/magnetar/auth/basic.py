"""Users and passwords of an htpasswd file.

    user ":" hash LF        "#" begins a comment; hashes: bcrypt, apr1, md5-crypt, sha256/512-crypt, {SHA}

Source: Apache httpd's htpasswd; Pulsar's basic provider (credentials are `user:password`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from passlib.context import CryptContext

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_BASIC, Credentials, Identity, Proof

_SCHEMES: Final = ("bcrypt", "apr_md5_crypt", "md5_crypt", "sha256_crypt", "sha512_crypt", "ldap_sha1")
_CREDENTIALS_BYTES_MAX: Final = 4_096


class BasicProvider:
    """Verifies user and password; the user is the role."""

    slow = True

    def __init__(self, htpasswd: str) -> None:
        """`htpasswd`: content of the file. Raises ValueError, which names the line."""
        self._context = CryptContext(schemes=list(_SCHEMES))
        self._hashes: dict[str, str] = {}
        for number, line in enumerate(htpasswd.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            user, colon, hashed = line.strip().partition(":")
            if not user or not colon or self._context.identify(hashed) is None:
                raise ValueError(f"line {number} is not user:hash with a hash of {', '.join(_SCHEMES)}")
            self._hashes[user] = hashed
        self._key = os.urandom(32)
        self._decoys = list(self._hashes.values()) or [self._context.hash("nobody")]

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """See `Provider`. Raises AuthenticationError, which does not reveal whether the user exists."""
        refusal = AuthenticationError("user or password is wrong")
        if len(credentials.data) > _CREDENTIALS_BYTES_MAX:
            raise refusal
        user, colon, password = credentials.data.decode("utf-8", "replace").partition(":")
        hashed = self._hashes.get(user)
        try:
            # An unknown user is checked like a known one, so that users cannot be found by timing.
            good = self._context.verify(password, hashed or self._decoy(user))
        except (ValueError, TypeError):
            # Passwords that no hash can be made of: NUL bytes, too long for bcrypt.
            good = False
        if not good or hashed is None or not colon:
            raise refusal
        return Identity(user, proofs=(Proof(METHOD_BASIC, _proof(user, hashed)),))

    def _decoy(self, user: str) -> str:
        """A hash that no password matches, always the same for one name. Its schemes and costs are as
        frequent as among users."""
        digest = hmac.digest(self._key, user.encode(), hashlib.sha256)
        return self._decoys[int.from_bytes(digest[:8], "big") % len(self._decoys)]

    def counts(self, proof: str) -> bool:
        """Whether the user still exists with the same password."""
        user = proof.partition(":")[0]
        hashed = self._hashes.get(user)
        return hashed is not None and proof == _proof(user, hashed)


def _proof(user: str, hashed: str) -> str:
    """A text from which the password's hash cannot be computed."""
    return f"{user}:{hashlib.sha256(hashed.encode()).hexdigest()}"
