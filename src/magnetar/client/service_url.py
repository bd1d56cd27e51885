"""ServiceAddresses of brokers and of their admin interfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from magnetar.base.errors import ClientError

BINARY_PORT: Final = 6650
BINARY_TLS_PORT: Final = 6651
HTTP_PORT: Final = 8080
HTTP_TLS_PORT: Final = 8443

_PORTS: Final = {
    "pulsar": BINARY_PORT,
    "pulsar+ssl": BINARY_TLS_PORT,
    "http": HTTP_PORT,
    "https": HTTP_TLS_PORT,
}


class BadUrlError(ClientError):
    """The text is not an address of a broker."""


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """One address; `str` gives its URL."""

    scheme: str
    """pulsar, pulsar+ssl, http or https."""
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ServiceUrl:
        """Reads `scheme://host[:port]`; takes the first of several hosts, which commas separate. Raises
        BadUrlError."""
        return cls.parse_all(text)[0]

    @classmethod
    def parse_all(cls, text: str) -> tuple[ServiceUrl, ...]:
        """Reads `scheme://host[:port],host[:port],…`: at least one address. Raises BadUrlError."""
        parts = urlsplit(text.strip())
        if parts.scheme not in _PORTS or not parts.netloc:
            raise BadUrlError(
                f"{text!r} is not a service URL: expected pulsar://host:6650 or http://host:8080"
                " (or pulsar+ssl, https)"
            )
        return tuple(cls._of(text, parts.scheme, each) for each in parts.netloc.split(","))

    @classmethod
    def _of(cls, text: str, scheme: str, place: str) -> ServiceUrl:
        try:
            parts = urlsplit(f"//{place.strip()}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadUrlError(f"{text!r} is not a service URL: {error}") from error
        if not host:
            raise BadUrlError(f"{text!r} is not a service URL: the host is missing")
        return cls(scheme, host, port or _PORTS[scheme])

    @property
    def is_http(self) -> bool:
        """Whether topics are looked up over HTTP."""
        return self.scheme.startswith("http")

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("pulsar+ssl", "https")

    def default_admin(self) -> ServiceUrl:
        """The admin interface at the usual port of the same host; returns itself when the scheme is HTTP."""
        if self.is_http:
            return self
        if self.is_tls:
            return ServiceUrl("https", self.host, HTTP_TLS_PORT)
        return ServiceUrl("http", self.host, HTTP_PORT)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ServiceAddresses:
    """The addresses of a service URL, one of which is in use."""

    def __init__(self, text: str) -> None:
        """Begins with the first. Raises BadUrlError."""
        self._all = ServiceUrl.parse_all(text)
        self._at = 0

    @property
    def now(self) -> ServiceUrl:
        """The one in use."""
        return self._all[self._at]

    def go_on(self) -> None:
        """The one in use does not answer: the next one is, after the last one the first."""
        self._at = (self._at + 1) % len(self._all)
