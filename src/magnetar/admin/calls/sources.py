"""Refuses requests that a foreign web page could make a browser send: see `app.py` and `websockets.py`."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from magnetar.admin.calls.call import Service
from magnetar.admin.calls.errors import ForbiddenError, MisdirectedError


def host_of(connection: HTTPConnection) -> str:
    """Host of the `Host` header without its port, in the form for URLs."""
    return _host_in(f"//{connection.headers.get('host', '')}", otherwise="localhost")


def check_request(connection: HTTPConnection, service: Service, *, changes: bool) -> None:
    """Checks a request. `changes`: whether it changes something. Raises MisdirectedError, ForbiddenError."""
    _check_host(connection, service)
    origin = connection.headers.get("origin")
    if origin is not None and changes and not _is_own(origin, connection):
        raise ForbiddenError(f"origin {origin!r} may not change anything here")


def check_socket(connection: HTTPConnection, service: Service, *, guarded: bool) -> None:
    """Checks the handshake of a WebSocket, which every page may try to open. With `guarded` (authentication)
    every origin is allowed, because the browser does not add credentials by itself. Raises MisdirectedError,
    ForbiddenError."""
    _check_host(connection, service)
    origin = connection.headers.get("origin")
    if origin is None or guarded or _is_own(origin, connection):
        return
    # "null" is the origin of sandboxes and files.
    if not (service.loopback_only and _is_loopback(_host_in(origin, otherwise="nobody"))):
        raise ForbiddenError(f"origin {origin!r} may not open a WebSocket here")


def _check_host(connection: HTTPConnection, service: Service) -> None:
    header = connection.headers.get("host", "")
    if service.loopback_only and header and not _is_loopback(host_of(connection)):
        raise MisdirectedError(
            f"host {header!r} is not a name of this machine; the admin port serves this machine only"
        )


def _is_own(origin: str, connection: HTTPConnection) -> bool:
    return origin.partition("://")[2].lower() == connection.headers.get("host", "").lower()


def _host_in(url: str, otherwise: str) -> str:
    try:
        host = urlsplit(url).hostname or otherwise
    except ValueError:
        return otherwise
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
