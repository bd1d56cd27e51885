"""Tokens of functions: each process that runs a function's code gets one, with the rights of its owner.

They live in this process alone. A token counts until it is withdrawn, when the process of the function has
ended, so that what code has written down or handed on is worth nothing afterwards. Grants are looked up with
each action, as for every client: what is taken from the owner is taken from its functions.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from typing import Final

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_FUNCTION, METHOD_TOKEN, Credentials, Identity, Proof

_PREFIX: Final = "magnetar-function-"
_RANDOM_BYTES: Final = 32


class FunctionTokens:
    """The tokens that count now. Implements `Provider`."""

    slow = False

    def __init__(self) -> None:
        self._owners: dict[str, Identity] = {}
        """By the digest of a token; as many as there are processes of functions."""

    def issue(self, owner: Identity, function: str) -> str:
        """A token for one process of a function. `function`: its full name, which logs show."""
        token = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        digest = _digest(token.encode())
        # The owner's own credential may end: it was shown when the function was created.
        self._owners[digest] = replace(
            owner, function=function, expires_ms=None, proofs=(Proof(METHOD_FUNCTION, digest),)
        )
        return token

    def withdraw(self, token: str) -> None:
        """The token counts no more."""
        self._owners.pop(_digest(token.encode()), None)

    @staticmethod
    def takes(credentials: Credentials) -> bool:
        """Whether they look like a token of a function; no other provider is asked then."""
        return credentials.method == METHOD_TOKEN and credentials.data.startswith(_PREFIX.encode())

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """See `Provider`. Raises AuthenticationError."""
        found = self._owners.get(_digest(credentials.data))
        if found is None:
            raise AuthenticationError("the token is that of a function's process, which has ended")
        return found

    def counts(self, proof: str) -> bool:
        """Whether the token was not withdrawn."""
        return proof in self._owners


def _digest(token: bytes) -> str:
    """What tokens are compared by: how long it takes tells nothing of the token."""
    return hashlib.sha256(token).hexdigest()
