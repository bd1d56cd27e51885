"""Refuses settings that expose an unprotected process to other machines."""

from __future__ import annotations

import ipaddress
import socket

from magnetar.base.errors import StartupError
from magnetar.server.settings.config import StandaloneConfig


def check_exposure(config: StandaloneConfig) -> None:
    """Raises StartupError when clients on other machines could do everything and the settings do not allow
    it."""
    if config.authentication or config.insecure:
        return
    exposed = next(
        (host for host in (config.host, config.plain_host) if host and not _is_loopback(host)), None
    )
    if exposed is None:
        return
    raise StartupError(
        f"host {exposed} can be reached from other machines, where every client could do everything: "
        f"configure authentication (docs/security.md), listen on 127.0.0.1, or give --insecure"
    )


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach all addresses of `host`. Raises StartupError for an unknown
    host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(f"host {host!r} is unknown; give an address of this machine") from error
    addresses = {str(address[4][0]).partition("%")[0] for address in found}
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
