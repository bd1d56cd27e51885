"""What the HTTP port of the proxy passes on, and what it says of it (pure).

A request is written anew from its parts, never copied: so brokers see the length and the end of each one as
the proxy does, and no header of a client reaches them that is not named here.
Source: Pulsar's AdminProxyHandler (paths, X-Original-Principal); RFC 9110, 7.6.1 (headers of one hop).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

PREFIXES: Final = ("/admin/", "/lookup/", "/topics/")
"""Paths that go to brokers."""
BODY_BYTES_MAX: Final = 16 << 20
_PASSED: Final = frozenset(
    ("accept", "accept-encoding", "content-type", "content-encoding", "if-none-match", "user-agent")
)
"""Headers of a request that brokers get. Credentials are decided apart."""
_CREDENTIALS: Final = frozenset(("authorization", "x-pulsar-auth-method-name"))
_OF_ONE_HOP: Final = frozenset(
    (
        "connection",
        "content-length",
        "keep-alive",
        "location",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers of an answer that are not passed on; the length is computed anew."""


def is_passed_on(path: str) -> bool:
    """Whether a broker answers this path."""
    return path.startswith(PREFIXES)


def url_at(broker: str, target: bytes, query: bytes) -> str | None:
    """The URL of a call at a broker, whose URL is `broker`; None: it would lead to another machine.

    `target`: the path as the client wrote it. One that does not begin with a slash continues the name of the
    machine: behind `http://broker:8080`, `%2fadmin%2f@elsewhere/` is a user at `elsewhere`, which would get
    the call and the proxy's credentials (the class of CVE-2022-24280).
    """
    url = broker + target.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    return url if target.startswith(b"/") and urlsplit(url).netloc == urlsplit(broker).netloc else None


def to_broker(given: Iterable[tuple[str, str]], *, role: str | None, own: str | None) -> dict[str, str]:
    """Headers for a broker, from those of a request, whose names are in lower case.

    `role`: what the client has proven here; None: clients are not authenticated here, and brokers get the
    credentials as they are. `own`: Authorization of the proxy itself; None: it has none.
    """
    kept = _PASSED if role is not None else _PASSED | _CREDENTIALS
    headers = {name: value for name, value in given if name in kept}
    if role is not None:
        headers["x-original-principal"] = role
        if own is not None:
            headers["authorization"] = own
    return headers


def to_client(given: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers of a broker's answer for the client."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in given
        if name.lower() not in _OF_ONE_HOP
    ]


def redirected(location: str, brokers: Iterable[str]) -> str | None:
    """The URL to which a broker redirects; None: it is not one of a broker's admin API, `brokers`."""
    bases: Mapping[tuple[str, str], None] = dict.fromkeys(
        (parts.scheme, parts.netloc.lower()) for parts in map(urlsplit, brokers)
    )
    try:
        there = urlsplit(location)
    except ValueError:  # its brackets hold no address
        return None
    known = (there.scheme, there.netloc.lower()) in bases
    return location if known and is_passed_on(there.path) else None
