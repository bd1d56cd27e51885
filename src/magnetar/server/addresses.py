"""How this process names itself to others, by what it listens on and what it advertises."""

from __future__ import annotations

import socket


def own_name(advertised: str, listened: str) -> str:
    """The host of the broker's id: as advertised, else as listened on; else the machine's name."""
    everywhere = listened in ("", "0.0.0.0", "::")  # nothing is bound here
    return advertised or (socket.gethostname() if everywhere else in_url(listened))


def in_url(host: str) -> str:
    """A host as it stands in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
