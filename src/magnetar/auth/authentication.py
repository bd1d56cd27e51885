"""The providers that are configured, chosen by the method that a client names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity


class Provider(Protocol):
    """Proves identities by one method."""

    slow: bool
    """Whether `identify` takes milliseconds of computing and belongs into a thread."""

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """Raises AuthenticationError."""
        ...


class TlsProvider:
    """The role is the common name of the client's certificate, verified in the handshake."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """Raises AuthenticationError when there was no certificate, or the connection is not TLS."""
        if credentials.certificate_role is None:
            raise AuthenticationError("no verified client certificate with one common name")
        return Identity(credentials.certificate_role)


@dataclass(frozen=True, slots=True)
class Authentication:
    """All that is configured."""

    providers: Mapping[str, Provider]
    """By method."""
    anonymous_role: str = ""
    """Role of clients that show nothing, or credentials of a method that is not configured; "": refused."""

    def provider(self, credentials: Credentials) -> Provider | None:
        """Who proves these credentials; None: nobody, see `identify`."""
        return self.providers.get(credentials.method)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        """Who it is. Raises AuthenticationError.

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
