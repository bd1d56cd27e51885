"""Fetches documents of issuers over HTTPS. Blocking: call it in threads."""

from __future__ import annotations

import ssl
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

TIMEOUT_S: Final = 10.0
"""Seconds for connecting, and for each read."""
_DOCUMENT_BYTES_MAX: Final = 1 << 20


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: keys are fetched only from the address that the issuer's document names."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class HttpsFetch:
    """Fetches documents; trusts the given certificates or those of the system."""

    def __init__(self, trust_certificates: Path | None = None) -> None:
        """`trust_certificates`: PEM; None: those of the system. Raises OSError when they cannot be read."""
        context = ssl.create_default_context(cafile=trust_certificates)
        self._opener = build_opener(HTTPSHandler(context=context), _NoRedirect())

    def __call__(self, url: str) -> bytes:
        """The document at `url`. Raises OSError; ValueError when it is too large or not HTTP."""
        request = Request(url, headers={"Accept": "application/json"})
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                body: bytes = response.read(_DOCUMENT_BYTES_MAX + 1)
        except HTTPException as error:
            raise ValueError(f"the answer is not HTTP: {error!r}") from error
        if len(body) > _DOCUMENT_BYTES_MAX:
            raise ValueError(f"the document is larger than {_DOCUMENT_BYTES_MAX} bytes")
        return body
