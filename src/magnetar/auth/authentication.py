"""The providers that are configured, chosen by the method that a client names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity


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
        """Who it is, or what to do before asking again. Raises AuthenticationError."""
        ...


class TlsProvider:
    """The role is the common name of the client's certificate, verified in the handshake."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """Raises AuthenticationError when there was no certificate, or the connection is not TLS."""
        if credentials.certificate_role is None:
            raise AuthenticationError("no verified client certificate with one common name")
        return Identity(credentials.certificate_role)


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
        """Who proves these credentials; None: nobody, see `identify`."""
        return self.providers.get(credentials.method)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Errand:
        """Who it is, or what to do before asking again. Raises AuthenticationError.

        As in Pulsar, an unknown method is anonymous: what it may do is then up to the grants.
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
