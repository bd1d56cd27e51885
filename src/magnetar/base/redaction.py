"""Removes secrets from documents and texts (pure)."""

from __future__ import annotations

import re
from typing import Final

REMOVED: Final = "(removed)"

_SECRET: Final = re.compile(
    r"password|passwd|passphrase|secret|token|credential|private|auth.*(param|data)|access.?key|api.?key|jaas",
    re.IGNORECASE,
)
"""Matches names of fields whose value is secret."""
_HARMLESS: Final = re.compile(r"seconds|_skew|_claim|_audience|enabled$", re.IGNORECASE)
_IN_TEXT: Final = re.compile(
    r"(?i)\b(bearer|basic)\s+[\w.+/=~-]{8,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*|data:;base64,[\w+/=-]+|://[^/\s:@]+:[^/\s@]+@"
)
"""Matches secrets in a text: headers, tokens in their usual form, contents of keys, passwords in
addresses."""
_GIVEN: Final = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|token|credential|access.?key|api.?key|private.?key)[\w.-]{0,40}"
    r"\\?[\"']?(?:\s{0,4}[=:]\s{0,4}|\s{1,4}is\s{1,4}))"
    r"(\\?\"(?:[^\"\\]|\\[^\"])*\\?\"|\\?'(?:[^'\\]|\\[^'])*\\?'|[^\s,;\"']+)"
)
"""Matches a secret name with its value, as in texts, settings, commands and JSON. The first group is kept."""


def is_secret(name: str) -> bool:
    """Whether a field of this name has a secret value."""
    return _SECRET.search(name) is not None and _HARMLESS.search(name) is None


def without_secrets(value: object, name: str = "") -> object:
    """A JSON document without its secrets. `name`: the field that holds it."""
    if isinstance(value, dict):
        return {key: without_secrets(each, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each, name) for each in value]
    if is_secret(name) and value not in (None, "", False, True):
        return REMOVED
    return scrubbed(value) if isinstance(value, str) else value


def scrubbed(text: str) -> str:
    """A text without the parts that look like secrets."""
    return _GIVEN.sub(_without_value, _IN_TEXT.sub(REMOVED, text))


def _without_value(found: re.Match[str]) -> str:
    kept: str = found[1]
    return found[0] if _HARMLESS.search(kept) or found[2] == REMOVED else kept + REMOVED
