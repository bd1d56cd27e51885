"""The settings of `magnetar proxy` that a broker does not have. Ports, TLS, authentication and limits of
connections are those of `StandaloneConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """See the module's text."""

    brokers: str = ""
    """URLs of the brokers, `pulsar://host:port` or `pulsar+ssl://host:port`, separated by commas; empty:
    those that the metadata service names."""
    brokers_http: str = ""
    """URLs of the brokers' admin API, separated by commas, for brokers that `brokers` names."""
    broker_tls: bool = False
    """True: connections to brokers use TLS."""
    broker_tls_ca: Path | None = None
    """PEM file of the authorities that sign the brokers' certificates; empty: those of the system."""
    broker_tls_certificate: Path | None = None
    """PEM file of the certificate that the proxy shows to brokers."""
    broker_tls_key: Path | None = None
    """PEM file of that certificate's key."""
    broker_tls_hostnames: bool = True
    """True: a broker's certificate must name its host."""
    broker_token: str = ""
    """The token that the proxy shows to brokers, or `file://` with the path of its file; empty: none."""
    forward_credentials: bool = False
    """True: brokers get the credentials of clients besides their role, and verify them."""
    lookups_max: int = 50_000
    """Number of questions of clients that are in work at a time. At least 1."""
    drain_seconds: float = 5.0
    """Time, in seconds, within which all connections are closed, a part at a time, when the proxy ends. At
    least 0."""
