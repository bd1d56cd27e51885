"""The first message of a TLS handshake."""

from __future__ import annotations

import contextlib
import ssl


def _made() -> bytes:
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
            ssl.MemoryBIO(), sent, server_hostname="localhost"
        ).do_handshake()
    return sent.read()


HELLO = _made()
"""Of Python's own client, whole."""
