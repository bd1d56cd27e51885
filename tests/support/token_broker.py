"""A standalone whose clients show tokens, and the tokens."""

from __future__ import annotations

import time
from pathlib import Path

from magnetar.auth.token import new_token

_SECRET = b"k" * 32


def token(role: str, lasts_s: int | None = None) -> str:
    """A token of a role; `lasts_s`: seconds that it counts, None for ever."""
    return new_token(_SECRET, role, now_s=int(time.time()), lasts_s=lasts_s)


def with_tokens(folder: Path, **more: str) -> dict[str, str]:
    """The environment of such a standalone, whose superuser is root; `folder` gets the key."""
    key = folder / "key"
    key.write_bytes(_SECRET)
    return {
        "MAGNETAR_AUTHENTICATION": "token",
        "MAGNETAR_TOKEN_SECRET_KEY": str(key),
        "MAGNETAR_SUPERUSER_ROLES": "root",
        **more,
    }
