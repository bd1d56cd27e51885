"""Credentials as they came, and what they prove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class CertificateRole(str):
    """The role in a certificate that the TLS layer has verified."""

    __slots__ = ("trusted",)

    trusted: frozenset[str]
    """Fingerprints of the certificates that were trusted when it was verified."""


@dataclass(frozen=True, slots=True)
class Proof:
    """By what an identity was proven, so that it can be asked later whether that still counts."""

    method: str
    text: str
    """The provider's own words. Holds no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a client."""

    role: str
    expires_ms: int | None = None
    """Unix time in ms from which it counts no more; None: never."""
    via: str = ""
    """Role of the proxy that speaks for it; "": it speaks for itself."""
    also: tuple[str, ...] = ()
    """Further roles of the same credential: what one of them may do, it may."""
    proofs: tuple[Proof, ...] = field(default=(), compare=False, repr=False)
    """All of them must go on to count; none: nothing was shown."""

    @property
    def speakers(self) -> tuple[tuple[str, ...], ...]:
        """All roles that must have a right for this identity to have it, each by one of its names."""
        own = (self.role, *self.also)
        return (own, (self.via,)) if self.via else (own,)

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


def shown_role(told: Callable[[str], Any]) -> CertificateRole | None:
    """The role that a client has shown in the TLS handshake; `told`: a transport's `get_extra_info`."""
    name = certificate_role(told("peercert"))
    if name is None:
        return None
    role = CertificateRole(name)
    role.trusted = getattr(getattr(told("ssl_object"), "context", None), "trusted", frozenset())
    return role
