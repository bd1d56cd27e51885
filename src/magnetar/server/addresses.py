"""Names and addresses of this process, from those it listens on and those it advertises, and its sockets."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from hashlib import blake2b
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")
_BACKLOG: Final = 1024
"""Connections that wait for their acceptance."""


def own_name(advertised: str, listened: str) -> str:
    """The host in the broker's id: the advertised one, else the one it listens on, else the machine's
    name."""
    everywhere = listened in ("", "0.0.0.0", "::")  # nothing is bound here
    return advertised or (socket.gethostname() if everywhere else in_url(listened))


def in_url(host: str) -> str:
    """A host in the form for URLs: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def socket_name(listened: str, port: int) -> str:
    """A name of a listening socket that only one process at a time can have: 16 hexadecimal digits.

    It is computed from the machine's boot, the network namespace (containers have their own), host and port.
    Outside of Linux the machine's name and network card replace the first two.
    """
    try:
        where = f"{_BOOT.read_text().strip()} {os.readlink(_NETWORK)}"
    except OSError:
        # There is no such file, so this is not Linux.
        where = f"{socket.gethostname()} {uuid.getnode():x}"
    return blake2b(f"{where} {listened} {port}".encode(), digest_size=8).hexdigest()


def listening(host: str, port: int, option: str) -> socket.socket:
    """A socket that listens, to be closed by the caller; `option` is what gives another port, for the error.

    Raises StartupError.
    """
    bound = reserved(host, port, option)
    listen(bound, option)
    return bound


def reserved(host: str, port: int, option: str) -> socket.socket:
    """A socket that has its port and refuses connections, until `listen`. Another socket that is made so can
    have the same port, and one of them can listen. Raises StartupError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        # Of free ports the kernel would else give one that another socket has reserved in this way.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _refused(error, host, port, option) from error
    return bound


def listen(bound: socket.socket, option: str) -> None:
    """Has a socket listen, which may do so already; it is closed when it cannot. Raises StartupError."""
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise _refused(error, host, port, option) from error


def _refused(error: OSError, host: str, port: int, option: str) -> StartupError:
    if error.errno == errno.EADDRINUSE:
        return StartupError(
            f"port {port} on {host} is in use: stop the process that uses it,"
            f" or choose another with {option} (0 takes a free one)"
        )
    return StartupError(f"cannot listen on {host}:{port}: {error.strerror}")
