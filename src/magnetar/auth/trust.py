"""The authorities that are trusted to sign certificates."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_CERTIFICATE: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----(.*?)-----END", re.DOTALL)


def fingerprints(pem: bytes) -> frozenset[str]:
    """Fingerprints of the certificates in a file's content; other content is ignored."""
    return frozenset(
        hashlib.sha256(b"".join(block.split())).hexdigest() for block in _CERTIFICATE.findall(pem)
    )
