"""Describes a changing call for the audit log, without its secrets (pure)."""

from __future__ import annotations

import json
from typing import Final

from magnetar.base.redaction import REMOVED, is_secret, scrubbed, without_secrets

_PATH_CHARS_MAX: Final = 1_000
_QUERY_CHARS_MAX: Final = 300
_BODY_CHARS_MAX: Final = 1_000
_READ_BYTES_MAX: Final = 64 << 10
"""Bytes of a body above which only its size is logged."""
_SETTINGS: Final = "/admin/v2/brokers/configuration/"
"""Path that is followed by a setting's name and its value."""


def told_of_change(method: str, path: str, query: str, body: bytes) -> str:
    """Method, path, query and body of a call; a long body is cut."""
    if path.startswith(_SETTINGS):
        name, slash, value = path.removeprefix(_SETTINGS).partition("/")
        path = f"{_SETTINGS}{name}{slash}{REMOVED if value and is_secret(name) else value}"
    told = f"{method} {scrubbed(path[:_PATH_CHARS_MAX])}"
    if query:
        told += f"?{scrubbed(query[:_QUERY_CHARS_MAX])}"
    return f"{told} {_told_of(body)}" if body.strip() else told


def _told_of(body: bytes) -> str:
    if len(body) > _READ_BYTES_MAX:
        return f"({len(body)} bytes)"
    try:
        text = json.dumps(without_secrets(json.loads(body)), separators=(",", ":"))
    except (ValueError, RecursionError):
        return f"({len(body)} bytes, not JSON)"
    return text if len(text) <= _BODY_CHARS_MAX else f"{text[:_BODY_CHARS_MAX]}… ({len(body)} bytes)"
