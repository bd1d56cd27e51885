"""Documents of issuers over HTTPS. Blocking: called in threads."""

from __future__ import annotations

import ssl
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

TIMEOUT_S: Final = 10.0
"""For connecting, and for each read."""
_DOCUMENT_BYTES_MAX: Final = 1 << 20


class _NoRedirect(HTTPRedirectHandler):
    """Keys come from where the issuer says, in its own words: not from where another answer leads."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class HttpsFetch:
    """Gets documents, trusting given certificates or those of the system."""

    def __init__(self, trust_certificates: Path | None = None) -> None:
        """`trust_certificates`: PEM; None: those of the system. Raises OSError when they cannot be read."""
        context = ssl.create_default_context(cafile=trust_certificates)
        self._opener = build_opener(HTTPSHandler(context=context), _NoRedirect())

    def __call__(self, url: str) -> bytes:
        """The document at `url`. Raises OSError, or ValueError for one that is too large or no HTTP."""
        request = Request(url, headers={"Accept": "application/json"})
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                body: bytes = response.read(_DOCUMENT_BYTES_MAX + 1)
        except HTTPException as error:
            raise ValueError(f"the answer is no HTTP: {error!r}") from error
        if len(body) > _DOCUMENT_BYTES_MAX:
            raise ValueError(f"the document is larger than {_DOCUMENT_BYTES_MAX} bytes")
        return body
