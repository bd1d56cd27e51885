"""Reads a key or a list of passwords from a file or from the setting itself.

Settings have Pulsar's forms: a path, `file:///path`, or `data:;base64,` with the content in base 64.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from magnetar.base.errors import StartupError


@dataclass(frozen=True, slots=True)
class Inline:
    """Content in the setting itself. `str` and `repr`, which logs may show, hide it."""

    content: bytes = field(repr=False)


SecretSource = Path | Inline


def secret_source(text: str) -> SecretSource:
    """The source that a setting names. Raises ValueError when it is empty, a URL of another kind, or not base
    64."""
    if text.startswith("data:"):
        kind, comma, data = text.partition(",")
        if not comma or not kind.endswith(";base64"):
            raise ValueError("after data: comes ;base64, and the content")
        return Inline(decoded(data))
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if not text:
        raise ValueError("it is empty")
    return Path(text).expanduser()


def decoded(data: str) -> bytes:
    """Content of base 64, of either alphabet, padded or not. Raises ValueError."""
    data = data.strip().replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base 64") from error


def content(source: SecretSource) -> bytes:
    """The content of a source. Raises StartupError when the file cannot be read."""
    if isinstance(source, Inline):
        return source.content
    try:
        return source.read_bytes()
    except OSError as error:
        raise StartupError(f"{source} cannot be read: {error.strerror}; check the path") from error
