"""Credentials as they came, and what they prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

METHOD_TOKEN = "token"
METHOD_BASIC = "basic"
METHOD_TLS = "tls"
PROVIDER_OPENID = "openid"
"""Tokens of issuers; its clients say METHOD_TOKEN."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows."""

    method: str
    """Pulsar's name of the method; "" or "none" when it shows nothing."""
    data: bytes = field(default=b"", repr=False)
    certificate_role: str | None = None
    """Common name of the client's certificate, which the TLS layer has verified; None without one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is."""

    role: str
    expires_ms: int | None = None
    """Unix time in ms from which it counts no more; None: never."""
    via: str = ""
    """Role of the proxy that speaks for it; "": it speaks for itself."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role that must have a right for this identity to have it."""
        return (self.role, self.via) if self.via else (self.role,)

    def __str__(self) -> str:
        return f"{self.role!r} via {self.via!r}" if self.via else repr(self.role)


def certificate_role(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in a verified certificate, as `ssl.SSLSocket.getpeercert` gives it.

    None without a certificate, and for one with no or several common names: which of them is meant cannot
    be told.
    """
    names = [
        value
        for distinguished in (certificate or {}).get("subject", ())
        for key, value in distinguished
        if key == "commonName"
    ]
    return names[0] if len(names) == 1 and names[0] else None
