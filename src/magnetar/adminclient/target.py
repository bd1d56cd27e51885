"""Address, credentials and trusted certificates of an admin API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from magnetar.adminclient.errors import AdminTargetError

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """Next steps after a failed call, with the names of the program's own options."""

    address: str = "is the broker running? check --admin-url or the context"
    timeout: str = "is it busy? check --timeout"
    trust: str = "check --trust-certs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """One admin API. `repr` does not show secrets."""

    url: str = DEFAULT_URL
    """http://host:port or https://host:port."""
    token: str = ""
    """Token that is sent with each call; empty: none."""
    token_file: Path | None = None
    """File of the token, read once per run of the program, in place of `token`."""
    authorization: Callable[[], str | None] | None = None
    """Returns the value of the header Authorization before each call, in place of `token` and `token_file`;
    for programs that run longer than a credential is valid."""
    trust_certs: Path | None = None
    """File of trusted certificates for https, PEM; None: those of the system."""
    tls_context: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context of each https connection, in place of `trust_certs`."""
    timeout_s: float = 30.0
    """Seconds for the answer to one call. Default 30."""
    remedies: Remedies = Remedies()
    """Next steps that the errors of calls name."""

    def __repr__(self) -> str:
        return f"AdminTarget({self.url})"

    def parts(self) -> SplitResult:
        """The parts of the URL. Raises AdminTargetError when it is not an HTTP URL."""
        parts = urlsplit(self.url)
        try:
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise AdminTargetError(f"{self.url} is not an HTTP URL; check --admin-url")
        return parts

    def credentials(self) -> Callable[[], str | None]:
        """A function that returns the header Authorization of each call, None for none. Raises
        AdminTargetError."""
        if self.authorization is not None:
            return self.authorization
        token = self.read_token()
        header = f"Bearer {token}" if token else None
        return lambda: header

    def read_token(self) -> str:
        """The token, "" for none. Raises AdminTargetError when its file cannot be read."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AdminTargetError(f"the token file {self.token_file} cannot be read: {error}") from error
