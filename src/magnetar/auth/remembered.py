"""Caches the results of slow checks of credentials. Pure.

Checking a password is slow on purpose, a quarter of a second and more. Without the cache each call over HTTP
would cost that, and clients that guess passwords would delay those that know theirs. The cache holds digests
under a key of this process: neither passwords nor values that help to guess them elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, TypeVar

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity

_V = TypeVar("_V")

_GOOD_MS: Final = 300_000
"""Milliseconds that a positive result is kept; a change of the list of users drops it earlier."""
_BAD_MS: Final = 10_000
"""Milliseconds that a negative result is kept: a client that keeps trying an old password costs one check in
this time."""
_ENTRIES_MAX: Final = 4_096
"""Most entries of each kind. The kinds are separate, so that guesses do not evict valid credentials."""


class Remembered:
    """Results of checks by credentials."""

    def __init__(self, key: bytes) -> None:
        """`key`: by chance, of this process."""
        self._key = key
        self._good: dict[bytes, tuple[range, Identity]] = {}
        """With the times, Unix ms, at which it counts: a clock that is set back makes none longer."""
        self._bad: dict[bytes, tuple[range, str]] = {}

    def find(self, credentials: Credentials, now_ms: int) -> Identity | None:
        """Whose credentials they are, None where nothing is known. Raises AuthenticationError."""
        digest = self._digest(credentials)
        if (good := self._good.get(digest)) is not None and now_ms in good[0]:
            return good[1]
        if (bad := self._bad.get(digest)) is not None and now_ms in bad[0]:
            raise AuthenticationError(bad[1])
        return None

    def note(self, credentials: Credentials, answer: Identity | AuthenticationError, now_ms: int) -> None:
        """What a check has just found."""
        digest = self._digest(credentials)
        if isinstance(answer, Identity):
            end_ms = now_ms + _GOOD_MS
            if answer.expires_ms is not None:
                end_ms = min(end_ms, answer.expires_ms)
            _put(self._good, digest, (range(now_ms, end_ms), answer))
        else:
            _put(self._bad, digest, (range(now_ms, now_ms + _BAD_MS), str(answer)))

    def forget(self) -> None:
        """Others may be let in now."""
        self._good.clear()
        self._bad.clear()

    def _digest(self, credentials: Credentials) -> bytes:
        text = len(credentials.method).to_bytes(4, "big") + credentials.method.encode() + credentials.data
        return hmac.digest(self._key, text, hashlib.sha256)


def _put(entries: dict[bytes, tuple[range, _V]], digest: bytes, value: tuple[range, _V]) -> None:
    entries.pop(digest, None)
    if len(entries) >= _ENTRIES_MAX:
        # The oldest.
        del entries[next(iter(entries))]
    entries[digest] = value
