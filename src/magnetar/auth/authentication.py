"""The providers that are configured, chosen by the method that a client names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TLS, CertificateRole, Credentials, Identity, Proof


class Errand(Protocol):
    """What must be fetched from elsewhere before a question can be answered."""

    @property
    def target(self) -> str:
        """Errands of the same target need to be run once only."""
        ...

    def run(self) -> None:
        """Blocks for seconds at most. Never raises: a failure is noted, and the question asked again."""
        ...


class Provider(Protocol):
    """Proves identities by one method."""

    slow: bool
    """Whether `identify` takes milliseconds of computing and belongs into a thread."""

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """The identity and its proof, or what to do before asking again. Raises AuthenticationError."""
        ...

    def counts(self, proof: str) -> bool:
        """Whether what was proven so would be proven today, its end left aside."""
        ...


class TlsProvider:
    """The role is the common name of the client's certificate, verified in the handshake.

    A certificate stays valid as long as all authorities of that handshake are trusted: one of them signed it.
    """

    slow = False

    def __init__(self, trusted: frozenset[str] = frozenset()) -> None:
        """`trusted`: fingerprints of the certificates of those who sign clients' certificates."""
        self._trusted = trusted

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """Raises AuthenticationError when there was no certificate, or the connection is not TLS."""
        role = credentials.certificate_role
        if role is None:
            raise AuthenticationError("no verified client certificate with one common name")
        trusted = role.trusted if isinstance(role, CertificateRole) else self._trusted
        if not trusted <= self._trusted:
            raise AuthenticationError(
                "the certificate was verified before the trusted authorities changed: connect again"
            )
        return Identity(str(role), proofs=(Proof(METHOD_TLS, " ".join(trusted)),))

    def counts(self, proof: str) -> bool:
        """Whether all authorities that were trusted then are trusted now."""
        return self._trusted.issuperset(proof.split())


class ProviderChain:
    """Several providers of one method: the first that accepts a credential says who it is.

    Source: Pulsar's AuthenticationProviderList.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = tuple(providers)
        self.slow = any(provider.slow for provider in providers)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """Raises AuthenticationError with what each of them said."""
        refusals = []
        for provider in self.providers:
            try:
                return provider.identify(credentials, now_ms)
            except AuthenticationError as error:
                refusals.append(str(error))
        raise AuthenticationError("; ".join(refusals))

    def counts(self, proof: str) -> bool:
        """Whether it counts with one of them."""
        return any(provider.counts(proof) for provider in self.providers)


@dataclass(frozen=True, slots=True)
class Authentication:
    """All that is configured."""

    providers: Mapping[str, Provider]
    """By method."""
    anonymous_role: str = ""
    """Role of clients that show nothing, or credentials of a method that is not configured; "": refused."""
    proxy_roles: frozenset[str] = frozenset()
    """Roles that speak for others, and never for themselves."""
    verify_original: bool = True
    """Whether a proxy must forward its client's credentials; else its word is taken."""
    renewal_check_s: float = 60.0
    """Time between two looks for credentials that have ended."""

    def provider(self, credentials: Credentials) -> Provider | None:
        """The provider for these credentials; None: there is none, see `identify`."""
        return self.providers.get(credentials.method)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """The identity, or what to do before asking again. Raises AuthenticationError.

        As in Pulsar, an unknown method is anonymous: grants decide what it may do.
        """
        provider = self.provider(credentials)
        if provider is not None:
            return provider.identify(credentials, now_ms)
        if self.anonymous_role:
            return Identity(self.anonymous_role)
        offered = ", ".join(self.providers)
        if credentials.method in ("", "none"):
            raise AuthenticationError(f"credentials are needed; offered are: {offered}")
        raise AuthenticationError(f"the authentication method {credentials.method[:40]!r} is not offered")

    def counts(self, identity: Identity) -> bool:
        """Whether all that an identity was proven by still counts, its end left aside."""
        return all(
            (provider := self.providers.get(proof.method)) is not None and provider.counts(proof.text)
            for proof in identity.proofs
        )
