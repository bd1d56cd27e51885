"""Reads values of the metadata store as JSON objects, numbers or texts (pure).

Another program, an older version or a damaged disk may have left any bytes there. A value that cannot be used
is refused with an error that names its path. Nothing is changed or deleted; only the object that the value
describes fails.
"""

from __future__ import annotations

import json
from typing import Any, Final

from magnetar.base.errors import MetadataError

_DIGITS_MAX: Final = 19
"""The largest number of digits: 63 bits."""


class DamagedDocumentError(MetadataError):
    """A stored value does not have the form that its path requires."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path} in the metadata cannot be used: {reason}. It was not changed; "
            "restore it from a backup (docs/backup.md), or set what it describes again"
        )
        self.path = path
        self.reason = reason


def object_of(path: str, data: bytes) -> dict[str, Any]:
    """A JSON object. Raises DamagedDocumentError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedDocumentError(path, f"it is not JSON ({type(error).__name__})") from error
    if not isinstance(document, dict):
        raise DamagedDocumentError(path, f"it is not a JSON object but {type(document).__name__}")
    return document


def number_of(path: str, data: bytes) -> int:
    """A decimal number from 0 on, of 63 bits at most. Raises DamagedDocumentError."""
    if not data.isdigit() or len(data) > _DIGITS_MAX:
        raise DamagedDocumentError(path, "it is not a decimal number")
    return int(data)


def text_of(path: str, data: bytes) -> str:
    """A text. Raises DamagedDocumentError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedDocumentError(path, "it is not a text") from error
