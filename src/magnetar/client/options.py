"""How a client connects."""

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
    """Limits and credentials. Secrets do not show in its text.

    Credentials are read whenever they are shown: on connecting, when a broker asks for them anew, and with
    each call over HTTP. At most one of token, user and TLS certificate is shown, in this order.
    Can be pickled, unless there is a `token_supplier` that cannot.
    """

    connect_timeout_s: float = 10.0
    """For the connection with its handshake."""
    request_timeout_s: float = 30.0
    """For one request to be answered, one write to be taken."""
    retry_timeout_s: float = 60.0
    """How long reads and look-ups are tried again before the last error is raised."""
    token: str = ""
    """A token, or `file:/path` of one; empty for none."""
    token_supplier: Callable[[], str] | None = None
    """Called for a token whenever one is needed, in place of `token`. Must not block for long."""
    user: str = ""
    """For authentication by user and password; empty for none."""
    password: str = ""
    tls_trust_certs_file: str = ""
    """Certificates to trust in PEM; empty for those of the system."""
    tls_certificate_file: str = ""
    """The client's own certificate in PEM; empty for none."""
    tls_key_file: str = ""
    """Its private key in PEM; empty when it is in the certificate's file."""
    tls_validate_hostname: bool = True
    """Whether the broker's certificate must name the host that was connected to."""

    def __repr__(self) -> str:
        shown = "token" if self.token or self.token_supplier else "user" if self.user else ""
        return f"ClientOptions(request_timeout_s={self.request_timeout_s:g}, credentials={shown!r})"

    def read_token(self) -> str:
        """The token itself, "" for none. Raises BadCredentialsError when its file cannot be read."""
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
        """The header of that name for a call over HTTP; None for none. Raises BadCredentialsError."""
        method, data = self.credentials()
        if method == "token":
            return f"Bearer {data.decode()}"
        return f"Basic {base64.b64encode(data).decode()}" if method == "basic" else None
