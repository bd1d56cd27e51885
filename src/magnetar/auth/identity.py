"""Credentials of clients, and the identities that they prove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

METHOD_TOKEN = "token"
METHOD_BASIC = "basic"
METHOD_TLS = "tls"
METHOD_FUNCTION = "function"
"""Method of the proofs of functions; their clients name METHOD_TOKEN."""
PROVIDER_OPENID = "openid"
"""Provider of issuers' tokens; its clients name METHOD_TOKEN."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that a client sends."""

    method: str
    """Pulsar's name of the method; "" or "none" when the client sends no credentials."""
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
    """The proof of an identity, with which its provider can check later whether it would still accept it."""

    method: str
    text: str
    """Text that only the provider interprets. Holds no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a client."""

    role: str
    expires_ms: int | None = None
    """Unix ms at which the identity expires; None: never."""
    via: str = ""
    """Role of the proxy that acts for the client; "": the client is connected directly."""
    also: tuple[str, ...] = ()
    """Further roles of the same credential; the identity has the rights of each of them."""
    along: tuple[tuple[str, ...], ...] = ()
    """Further speakers, as in `speakers`: roles that have changed a function beside its owner."""
    function: str = ""
    """Full name of the function whose code acts with the rights of the role; "": no function does."""
    proofs: tuple[Proof, ...] = field(default=(), compare=False, repr=False)
    """All proofs must stay valid. Empty when the client sent no credentials."""

    @property
    def speakers(self) -> tuple[tuple[str, ...], ...]:
        """The identity has a right when, in each tuple, at least one role has it: proxy and client each need
        it."""
        own = (self.role, *self.also)
        return (own, (self.via,), *self.along) if self.via else (own, *self.along)

    def __str__(self) -> str:
        shown = f"{self.role!r} via {self.via!r}" if self.via else repr(self.role)
        return f"{shown} by function {self.function!r}" if self.function else shown


def subject_values(certificate: Mapping[str, object] | None, name: str) -> list[str]:
    """What a verified certificate's subject says under this name; the certificate in the form of
    `ssl.SSLSocket.getpeercert`, which has its pairs of names and values in tuples of tuples."""
    subject = (certificate or {}).get("subject", ())
    assert isinstance(subject, tuple)
    return [str(value) for distinguished in subject for key, value in distinguished if key == name]


def certificate_role(certificate: Mapping[str, object] | None) -> str | None:
    """The common name in a verified certificate, in the form of `ssl.SSLSocket.getpeercert`.

    None without a certificate, and for a certificate without exactly one common name.
    """
    names = subject_values(certificate, "commonName")
    return names[0] if len(names) == 1 and names[0] else None


def shown_role(told: Callable[[str], object]) -> CertificateRole | None:
    """The role in the client's certificate of the TLS handshake. `told`: a transport's `get_extra_info`."""
    certificate = told("peercert")
    name = certificate_role(certificate if isinstance(certificate, Mapping) else None)
    if name is None:
        return None
    role = CertificateRole(name)
    role.trusted = getattr(getattr(told("ssl_object"), "context", None), "trusted", frozenset())
    return role
