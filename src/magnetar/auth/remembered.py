"""What was found out about credentials whose check is dear, for a while. Pure.

A password is made to be slow to check, a quarter of a second and more. Without a memory each call over HTTP
would cost that, and who guesses would keep those who know it waiting. What is kept are digests under a
key of this process: neither passwords nor what could be tried outside of it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, TypeVar

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity

_V = TypeVar("_V")

_GOOD_MS: Final = 300_000
"""An entry is dropped earlier where the list of users changes."""
_BAD_MS: Final = 10_000
"""A client that tries again and again with an old password costs one check in so long."""
_ENTRIES_MAX: Final = 4_096
"""Entries of each kind: a client that guesses evicts other guesses, not valid credentials."""


class Remembered:
    """Answers, by credentials."""

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
