"""How a client connects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magnetar.client.errors import ClientError


class BadCredentialsError(ClientError):
    """The credentials cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Limits and credentials. Can be pickled; secrets do not show in its text."""

    connect_timeout_s: float = 10.0
    """For the connection with its handshake."""
    request_timeout_s: float = 30.0
    """For one request to be answered, one write to be taken."""
    retry_timeout_s: float = 60.0
    """How long reads and look-ups are tried again before the last error is raised."""
    token: str = ""
    """A token, or `file:/path` of one; empty for none."""
    tls_trust_certs_file: str = ""
    """Certificates to trust in PEM; empty for those of the system."""

    def __repr__(self) -> str:
        token = "***" if self.token else ""
        return f"ClientOptions(request_timeout_s={self.request_timeout_s:g}, token={token!r})"

    def read_token(self) -> str:
        """The token itself, "" for none. Raises BadCredentialsError when its file cannot be read."""
        if not self.token.startswith("file:"):
            return self.token
        path = Path(self.token.removeprefix("file://").removeprefix("file:"))
        try:
            return path.read_text("utf-8").strip()
        except OSError as error:
            raise BadCredentialsError(f"cannot read the token file {path}: {error.strerror}") from error

    def credentials(self) -> tuple[str | None, bytes]:
        """Method and data for CONNECT. Raises BadCredentialsError."""
        token = self.read_token()
        return ("token", token.encode()) if token else (None, b"")
