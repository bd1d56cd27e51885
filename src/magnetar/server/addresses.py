"""How this process names itself to others, by what it listens on and what it advertises."""

from __future__ import annotations

import os
import socket
import uuid
from hashlib import blake2b
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


def own_name(advertised: str, listened: str) -> str:
    """The host of the broker's id: as advertised, else as listened on; else the machine's name."""
    everywhere = listened in ("", "0.0.0.0", "::")  # nothing is bound here
    return advertised or (socket.gethostname() if everywhere else in_url(listened))


def in_url(host: str) -> str:
    """A host as it stands in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def socket_name(listened: str, port: int) -> str:
    """Names a listening socket so that one process at a time can have it: 16 hexadecimal digits.

    Made of the machine's boot, the network namespace (containers of a machine have their own), host and port.
    Elsewhere than on Linux the machine's name and network card stand for the first two.
    """
    try:
        where = f"{_BOOT.read_text().strip()} {os.readlink(_NETWORK)}"
    except OSError:
        # There is no such file, so this is not Linux.
        where = f"{socket.gethostname()} {uuid.getnode():x}"
    return blake2b(f"{where} {listened} {port}".encode(), digest_size=8).hexdigest()
