"""Parses the values of settings in files and variables.

Sizes may be written with a unit: "64MiB", "1GiB".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import SecretSource, secret_source
from magnetar.base.errors import StartupError
from magnetar.server.settings.config import StandaloneConfig

_UNITS: Final = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def read(key: str, value: object, where: str) -> object:
    """The value of the setting `key` in the type of its field. Raises StartupError, which names `where`."""
    kind, reader = _READERS[key]
    try:
        return reader(value)
    except ValueError:
        raise StartupError(f"{where}: {value!r} is not {kind}; correct it") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _size(value: object) -> int:
    if not isinstance(value, str):
        return _number(value)
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", value.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError
    return int(match[1]) * _UNITS[match[2].lower()]


def _flag(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def _path(value: object) -> Path:
    text = _text(value)
    if not text:
        raise ValueError
    return Path(text).expanduser()


def _secret(value: object) -> SecretSource:
    if not (text := _text(value)):
        raise ValueError
    return secret_source(text)


_KINDS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "str": ("a text", _text),
    "int": ("a whole number", _number),
    "bool": ("true or false", _flag),
    "Path | None": ("a path", _path),
    "SecretSource | None": ("a path, or data:;base64, and the content", _secret),
}

_READERS: Final = {
    field.name: ("a size in bytes", _size) if "_bytes" in field.name else _KINDS[str(field.type)]
    for field in fields(StandaloneConfig)
}
"""For each setting the description of its values, and their parser."""

KEYS: Final = tuple(_READERS)
"""Names of all settings."""

FORMER_NAMES: Final = {"disk_room_percent": "disk_resume_percent"}
"""Former names of settings, each with the present name. They are still read, with a warning."""
