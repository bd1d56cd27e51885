"""Removes secrets from the texts of stores' libraries. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "***"

_SECRET_VARIABLES: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|SAS|CREDENTIAL|CONNECTION_STRING", re.IGNORECASE
)
_FAMILIES: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "GCP_", "OBJECT_STORE_")
_SECRET_LENGTH_MIN: Final = 6
"""Characters of the shortest value that counts as a secret; shorter ones would match ordinary words."""

_USER_INFORMATION: Final = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETERS: Final = re.compile(
    r"(?i)\b(sig|signature|x-amz-[\w-]+|x-goog-[\w-]+|awsaccesskeyid|googleaccessid|sharedaccesskey|accountkey|"
    r"secret[\w-]*|token|password|se|sp|sv|skoid|sktid)=[^&\s\"'>;]+"
)
_HEADERS: Final = re.compile(r"(?i)\b(authorization|x-amz-security-token)(\"?\s*[:=]\s*\"?)[^\r\n\"]+")


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables that give stores' libraries their credentials, the longest first.

    Paths of files do not count as secrets.
    """
    found = {
        value
        for name, value in environment.items()
        if name.upper().startswith(_FAMILIES)
        and _SECRET_VARIABLES.search(name)
        and len(value) >= _SECRET_LENGTH_MIN
        and not value.startswith("/")
    }
    return tuple(sorted(found, key=len, reverse=True))


def redacted(text: str, secrets: tuple[str, ...] = ()) -> str:
    """The text without these secrets, and without values in URLs and headers that look like secrets."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    text = _USER_INFORMATION.sub(f"{HIDDEN}@", text)
    text = _PARAMETERS.sub(lambda match: f"{match[1]}={HIDDEN}", text)
    return _HEADERS.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)
