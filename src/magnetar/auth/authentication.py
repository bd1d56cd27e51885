"""The configured providers of authentication, chosen by the method that a client names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_FUNCTION, METHOD_TLS, CertificateRole, Credentials, Identity, Proof


class Errand(Protocol):
    """A blocking task, such as a fetch of keys, that must run before credentials can be checked."""

    @property
    def target(self) -> str:
        """Name of the target; errands with the same target need to run only once."""
        ...

    def run(self) -> None:
        """Runs the task; blocks for seconds at most. Never raises: it notes a failure, and the caller checks
        the credentials again."""
        ...


class Provider(Protocol):
    """Proves identities by one method."""

    slow: bool
    """Whether `identify` computes for milliseconds and must run in a thread."""

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """The identity and its proof, or the errand to run before the next call. Raises
        AuthenticationError."""
        ...

    def counts(self, proof: str) -> bool:
        """Whether an earlier proof would still be accepted now, apart from its expiry."""
        ...


class TlsProvider:
    """The role is the common name of the client's certificate, verified in the handshake.

    A certificate stays valid as long as all authorities of that handshake are trusted: one of them signed it.
    """

    slow = False

    def __init__(self, trusted: frozenset[str] = frozenset()) -> None:
        """`trusted`: fingerprints of the authorities' certificates that sign clients' certificates."""
        self._trusted = trusted

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """See `Provider`. Raises AuthenticationError when there was no certificate, or the connection is not
        TLS."""
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
        """Whether all authorities that were trusted at the handshake are still trusted."""
        return self._trusted.issuperset(proof.split())


class ProviderChain:
    """Several providers of one method: the first that accepts a credential determines the identity.

    Source: Pulsar's AuthenticationProviderList.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = tuple(providers)
        self.slow = any(provider.slow for provider in providers)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """See `Provider`. Raises AuthenticationError with the reasons of all providers."""
        refusals = []
        for provider in self.providers:
            try:
                return provider.identify(credentials, now_ms)
            except AuthenticationError as error:
                refusals.append(str(error))
        raise AuthenticationError("; ".join(refusals))

    def counts(self, proof: str) -> bool:
        """Whether one of the providers still accepts the proof."""
        return any(provider.counts(proof) for provider in self.providers)


class OwnTokens(Provider, Protocol):
    """Tokens that this process has made itself."""

    def takes(self, credentials: Credentials) -> bool:
        """Whether they look like one of these; no other provider is asked then."""
        ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """The configuration of authentication."""

    providers: Mapping[str, Provider]
    """Providers by method."""
    anonymous_role: str = ""
    """Role of clients that send no credentials, or credentials of a method that is not configured; "": such
    clients are refused."""
    proxy_roles: frozenset[str] = frozenset()
    """Roles of proxies, which act only for their clients, never for themselves."""
    verify_original: bool = True
    """Whether a proxy must forward its client's credentials; else the role that it names is trusted."""
    renewal_check_s: float = 60.0
    """Seconds between two checks for expired credentials."""
    functions: OwnTokens | None = None
    """Tokens of the functions that run beside this broker; None: it runs none. They need no configured
    provider."""

    def provider(self, credentials: Credentials) -> Provider | None:
        """The provider for these credentials; None when there is none, see `identify`."""
        if self.functions is not None and self.functions.takes(credentials):
            return self.functions
        return self.providers.get(credentials.method)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """The identity, or the errand to run before the next call. Raises AuthenticationError.

        As in Pulsar, a client with an unknown method is anonymous: grants decide what it may do.
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
        """Whether all proofs of an identity would still be accepted now, apart from their expiry."""
        return all(
            (provider := self._prover(proof)) is not None and provider.counts(proof.text)
            for proof in identity.proofs
        )

    def _prover(self, proof: Proof) -> Provider | None:
        return self.functions if proof.method == METHOD_FUNCTION else self.providers.get(proof.method)
