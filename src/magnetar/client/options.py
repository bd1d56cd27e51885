"""Options of a client's connections."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from magnetar.base.errors import ClientError


class BadCredentialsError(ClientError):
    """The credentials cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Timeouts and credentials. `repr` does not show secrets.

    Credentials are read each time they are sent: on connecting, when a broker asks for them again, and with
    each call over HTTP. The first of token, user and TLS certificate that is set is sent.
    Can be pickled if its `token_supplier` can.
    """

    connect_timeout_s: float = 10.0
    """Seconds for opening a connection, including its handshake. Default 10."""
    request_timeout_s: float = 30.0
    """Seconds for the answer to one request, and for one write to be taken. Default 30."""
    retry_timeout_s: float = 60.0
    """Seconds for which reads and look-ups are repeated before the last error is raised. Default 60."""
    token: str = ""
    """A token, or `file:/path` of a file with one; empty: no token."""
    token_supplier: Callable[[], str] | None = None
    """Called for each needed token, in place of `token`. Must not block for long."""
    user: str = ""
    """Name for authentication by user and password; empty: none."""
    password: str = ""
    tls_trust_certs_file: str = ""
    """File of trusted certificates, PEM; empty: those of the system."""
    tls_certificate_file: str = ""
    """File of the client's own certificate, PEM; empty: none."""
    tls_key_file: str = ""
    """File of its private key, PEM; empty: the certificate's file has it."""
    tls_validate_hostname: bool = True
    """Whether the broker's certificate must name the host of the connection. Default True."""

    def __repr__(self) -> str:
        shown = "token" if self.token or self.token_supplier else "user" if self.user else ""
        return f"ClientOptions(request_timeout_s={self.request_timeout_s:g}, credentials={shown!r})"

    def read_token(self) -> str:
        """The token; "" for none. Raises BadCredentialsError when its file cannot be read."""
        if self.token_supplier is not None:
            return self.token_supplier()
        if not self.token.startswith("file:"):
            return self.token
        path = Path(self.token.removeprefix("file://").removeprefix("file:"))
        try:
            return path.read_text("utf-8").strip()
        except OSError as error:
            raise BadCredentialsError(f"cannot read the token file {path}: {error.strerror}") from error

    def credentials(self) -> tuple[str | None, bytes]:
        """Method and data for CONNECT and AUTH_RESPONSE. Raises BadCredentialsError."""
        token = self.read_token()
        if token:
            return "token", token.encode()
        if self.user:
            return "basic", f"{self.user}:{self.password}".encode()
        return ("tls", b"") if self.tls_certificate_file else (None, b"")

    def authorization(self) -> str | None:
        """Value of the header Authorization for a call over HTTP; None: no header. Raises
        BadCredentialsError."""
        method, data = self.credentials()
        if method == "token":
            return f"Bearer {data.decode()}"
        return f"Basic {base64.b64encode(data).decode()}" if method == "basic" else None
